#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/float_convert.h"
#include "io/block_scales.h"
#include "io/dequantize.h"

namespace miniacc {
namespace {

template <typename T>
void write(std::byte* bytes, T value) {
  std::memcpy(bytes, &value, sizeof(T));
}

template <typename T, typename Convert>
void convert_each(std::span<const float> values, std::byte* out, Convert convert) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    write<T>(out + i * sizeof(T), convert(values[i]));
  }
}

/// 1 / scale; 0 where that would be infinite (the scale is then 0 as f16 too).
float inverse_or_zero(float scale) {
  const float inverse = 1.0F / scale;
  return std::isfinite(inverse) ? inverse : 0.0F;
}

/// ggml's reference: scale = largest magnitude / 127, ties away from zero.
void block_q8_0(const float* values, std::byte* block) {
  float largest = 0.0F;
  for (int i = 0; i < 32; ++i) {
    largest = std::max(largest, std::fabs(values[i]));
  }
  const float scale = largest / 127.0F;
  const float inverse = inverse_or_zero(scale);
  write(block, float_to_f16(scale));
  for (int i = 0; i < 32; ++i) {
    block[2 + i] = static_cast<std::byte>(static_cast<int>(std::round(values[i] * inverse)));
  }
}

/// ggml's reference: the value of largest magnitude (the first of equals) becomes -8.
void block_q4_0(const float* values, std::byte* block) {
  float extreme = 0.0F;
  for (int i = 0; i < 32; ++i) {
    if (std::fabs(values[i]) > std::fabs(extreme)) {
      extreme = values[i];
    }
  }
  const float scale = extreme / -8.0F;
  const float inverse = inverse_or_zero(scale);
  const auto nibble = [&](float value) {
    // Through double (exact, then rounded once), so that no compiler fuses product and sum.
    const auto product = static_cast<float>(static_cast<double>(value) * inverse);
    const float shifted = product + 8.5F;
    return std::clamp(static_cast<int>(shifted), 0, 15);
  };
  write(block, float_to_f16(scale));
  for (int i = 0; i < 16; ++i) {
    block[2 + i] = static_cast<std::byte>(nibble(values[i]) | (nibble(values[i + 16]) << 4));
  }
}

constexpr float kMaxMagnitude = 65504.0F;  // largest f16
constexpr int kPart = 32;                  // values with one scale and minimum
constexpr int kParts = 8;                  // parts of a q4_k block
constexpr int kMaxQ4 = 15;                 // largest 4-bit value
constexpr int kMax6 = 63;                  // largest 6-bit scale or minimum

/// value ~ step * q - minimum, with minimum >= 0.
struct Grid {
  float step = 0.0F;
  float minimum = 0.0F;
};

int nearest(float value, Grid grid) {
  if (grid.step == 0.0F) {
    return 0;
  }
  return static_cast<int>(
      std::clamp(std::nearbyint((value + grid.minimum) / grid.step), 0.0F, 15.0F));
}

double squared_error(const float* values, Grid grid) {
  double sum = 0.0;
  for (int i = 0; i < kPart; ++i) {
    const double delta =
        values[i] - (grid.step * static_cast<float>(nearest(values[i], grid)) - grid.minimum);
    sum += delta * delta;
  }
  return sum;
}

/// The least-squares grid for the 4-bit values that `grid` assigns; `grid` itself where there is
/// none with a positive step.
Grid refit(const float* values, Grid grid) {
  double sum_q = 0.0;
  double sum_qq = 0.0;
  double sum_x = 0.0;
  double sum_qx = 0.0;
  for (int i = 0; i < kPart; ++i) {
    const int q = nearest(values[i], grid);
    sum_q += q;
    sum_qq += static_cast<double>(q) * q;
    sum_x += values[i];
    sum_qx += static_cast<double>(q) * values[i];
  }
  const double determinant = kPart * sum_qq - sum_q * sum_q;
  if (determinant <= 0.0) {
    return grid;
  }
  double step = (kPart * sum_qx - sum_q * sum_x) / determinant;
  double minimum = (sum_q * sum_qx - sum_qq * sum_x) / determinant;
  if (minimum < 0.0) {  // the format has no positive offset: best step through zero
    minimum = 0.0;
    step = sum_qx / sum_qq;
  }
  if (step <= 0.0) {
    return grid;
  }
  return {static_cast<float>(step), static_cast<float>(minimum)};
}

/// Tries grids between the full range of the values and one that clips about an eighth of it, each
/// improved by a least-squares fit, and keeps the best.
Grid best_grid(const float* values) {
  const auto [low, high] = std::minmax_element(values, values + kPart);
  const float minimum = std::max(0.0F, -*low);
  const float range = std::max(0.0F, *high) + minimum;
  Grid best{range / kMaxQ4, minimum};
  if (range == 0.0F) {
    return best;
  }
  double best_error = squared_error(values, best);
  for (int clip = 0; clip <= 8; ++clip) {
    const float shrink = 1.0F - static_cast<float>(clip) / 64.0F;
    Grid grid{range * shrink / kMaxQ4, minimum * shrink};
    for (int round = 0; round < 2; ++round) {
      grid = refit(values, grid);
      const double error = squared_error(values, grid);
      if (error < best_error) {
        best_error = error;
        best = grid;
      }
    }
  }
  return best;
}

/// The f16 that scales 6-bit numbers so that 63 reaches `largest`.
std::uint16_t scale_of_scales(float largest) { return float_to_f16(largest / kMax6); }

int six_bits(float value, float unit) {
  if (unit == 0.0F) {
    return 0;
  }
  return static_cast<int>(std::clamp(std::nearbyint(value / unit), 0.0F, 63.0F));
}

void block_q4_k(const float* values, std::byte* block) {
  std::array<Grid, kParts> grids;
  Grid largest;
  for (int part = 0; part < kParts; ++part) {
    Grid& grid = grids[static_cast<std::size_t>(part)];
    grid = best_grid(values + part * kPart);
    largest.step = std::max(largest.step, grid.step);
    largest.minimum = std::max(largest.minimum, grid.minimum);
  }
  const std::uint16_t scale_bits = scale_of_scales(largest.step);
  const std::uint16_t min_bits = scale_of_scales(largest.minimum);
  const float scale = f16_to_float(scale_bits);
  const float min_scale = f16_to_float(min_bits);

  std::fill_n(block, block_bytes(DType::kQ4_K), std::byte{0});
  write(block, scale_bits);
  write(block + 2, min_bits);
  for (int part = 0; part < kParts; ++part) {
    const Grid& wanted = grids[static_cast<std::size_t>(part)];
    const ScaleAndMin packed{six_bits(wanted.step, scale), six_bits(wanted.minimum, min_scale)};
    pack_scale_and_min(packed, part, block + 4);
    // The values are assigned on the grid that a reader will see.
    const Grid stored{scale * static_cast<float>(packed.scale),
                      min_scale * static_cast<float>(packed.minimum)};
    for (int i = 0; i < kPart; ++i) {
      const int q = nearest(values[part * kPart + i], stored);
      block[16 + (part / 2) * kPart + i] |= static_cast<std::byte>(part % 2 == 0 ? q : q << 4);
    }
  }
}

void convert_blocks(DType dtype, std::span<const float> values, std::byte* out,
                    void (*convert)(const float*, std::byte*)) {
  const auto elements = static_cast<std::size_t>(block_elements(dtype));
  for (std::size_t block = 0; block < values.size() / elements; ++block) {
    convert(values.data() + block * elements, out + block * block_bytes(dtype));
  }
}

}  // namespace

void quantize(DType dtype, std::span<const float> values, std::span<std::byte> out) {
  MINIACC_REQUIRE(storage_bytes(dtype, static_cast<std::int64_t>(values.size())) == out.size(),
                  "quantize: size of the output");
  if (dtype == DType::kI8 || is_block_type(dtype)) {
    // Larger ones could need a scale beyond f16; NaN has no integer.
    MINIACC_REQUIRE(std::all_of(values.begin(), values.end(),
                                [](float value) { return std::fabs(value) <= kMaxMagnitude; }),
                    "quantize: values must be finite and at most 65504");
  }
  switch (dtype) {
    case DType::kF32:
      if (!values.empty()) {
        std::memcpy(out.data(), values.data(), out.size());
      }
      return;
    case DType::kF16:
      return convert_each<std::uint16_t>(values, out.data(), float_to_f16);
    case DType::kBF16:
      return convert_each<std::uint16_t>(values, out.data(),
                                         [](float value) { return float_to_bf16(value); });
    case DType::kF8E4M3:
      return convert_each<std::uint8_t>(values, out.data(), float_to_f8e4m3);
    case DType::kI8:
      return convert_each<std::int8_t>(values, out.data(), [](float value) {
        return static_cast<std::int8_t>(std::clamp(std::nearbyint(value), -128.0F, 127.0F));
      });
    case DType::kQ8_0:
      return convert_blocks(dtype, values, out.data(), block_q8_0);
    case DType::kQ4_0:
      return convert_blocks(dtype, values, out.data(), block_q4_0);
    case DType::kQ4_K:
      return convert_blocks(dtype, values, out.data(), block_q4_k);
    default:
      MINIACC_REQUIRE(false, "quantize: not a dtype that can be written");
  }
}

}  // namespace miniacc
