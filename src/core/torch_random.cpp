#include "core/torch_random.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "core/error.h"

// This file is compiled with -ffp-contract=off: where PyTorch fuses a multiply-add it says
// std::fma, and everywhere else both roundings happen.

namespace miniacc {
namespace {

constexpr std::size_t kBlock = 16;

struct SinCos {
  float sin;
  float cos;
};

/// Natural logarithm of a normal float in (0, 1]; Cephes logf: x = 2^e · m with m in [√½, √2), a
/// degree-8 polynomial in m - 1, and ln 2 split in two parts.
inline float cephes_log(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  auto exponent = static_cast<float>(static_cast<std::int32_t>(bits >> 23) - 126);
  const float mantissa = std::bit_cast<float>((bits & 0x007FFFFFU) | 0x3F000000U);
  float m = mantissa - 1.0F;
  if (mantissa < std::numbers::sqrt2_v<float> / 2.0F) {
    exponent -= 1.0F;
    m += mantissa;
  }
  constexpr std::array<float, 9> kPolynomial = {
      7.0376836292e-2F,  -1.1514610310e-1F, 1.1676998740e-1F,  -1.2420140846e-1F, 1.4249322787e-1F,
      -1.6668057665e-1F, 2.0000714765e-1F,  -2.4999993993e-1F, 3.3333331174e-1F};
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr float kLn2High = 0.693359375F;
  const float square = m * m;
  float y = kPolynomial[0];
  for (std::size_t i = 1; i < kPolynomial.size(); ++i) {
    y = std::fma(y, m, kPolynomial[i]);
  }
  y = y * m;
  y = std::fma(y, square, exponent * kLn2Low);
  y = std::fma(-square, 0.5F, y);
  return std::fma(exponent, kLn2High, m + y);
}

/// Sine and cosine of x in [0, 2π]; Cephes sinf/cosf: reduction by multiples of π/4 in three parts,
/// then one polynomial for each of the two half-octants.
inline SinCos cephes_sincos(float x) {
  constexpr float kFourOverPi = 1.27323954473516F;
  auto octant = static_cast<std::int32_t>(x * kFourOverPi);
  octant = (octant + 1) & ~1;
  const auto y = static_cast<float>(octant);
  x = std::fma(y, -0.78515625F, x);
  x = std::fma(y, -2.4187564849853515625e-4F, x);
  x = std::fma(y, -3.77489497744594108e-8F, x);
  const float z = x * x;

  float cosine = std::fma(2.443315711809948e-5F, z, -1.388731625493765e-3F);
  cosine = std::fma(cosine, z, 4.166664568298827e-2F);
  cosine = cosine * z;
  cosine = std::fma(cosine, z, -(z * 0.5F));
  cosine = cosine + 1.0F;

  float sine = std::fma(-1.9515295891e-4F, z, 8.3321608736e-3F);
  sine = std::fma(sine, z, -1.6666654611e-1F);
  sine = sine * z;
  sine = std::fma(sine, x, x);

  const bool swapped = (octant & 2) != 0;
  const float sin_value = swapped ? cosine : sine;
  const float cos_value = swapped ? sine : cosine;
  return {(octant & 4) != 0 ? -sin_value : sin_value,
          ((octant - 2) & 4) == 0 ? -cos_value : cos_value};
}

/// Box-Muller over the pairs (j, j + 8) of one block of 16 uniforms, in place. The clones give the
/// same bits: the plain one calls the library's fma, the other one the processor's.
__attribute__((target_clones("fma", "default"))) void transform_block(float* values) {
  for (std::size_t j = 0; j < kBlock / 2; ++j) {
    const float radius = std::sqrt(-2.0F * cephes_log(1.0F - values[j]));
    const SinCos angle = cephes_sincos(2.0F * std::numbers::pi_v<float> * values[j + kBlock / 2]);
    values[j] = radius * angle.cos;
    values[j + kBlock / 2] = radius * angle.sin;
  }
}

}  // namespace

TorchRandom::TorchRandom(std::uint64_t seed) {
  state_[0] = static_cast<std::uint32_t>(seed);
  for (std::size_t i = 1; i < state_.size(); ++i) {
    const std::uint32_t previous = state_[i - 1];
    state_[i] = 1812433253U * (previous ^ (previous >> 30)) + static_cast<std::uint32_t>(i);
  }
}

void TorchRandom::refill() {
  constexpr std::size_t kSize = 624;
  constexpr std::size_t kShift = 397;
  for (std::size_t i = 0; i < kSize; ++i) {
    const std::uint32_t joined =
        (state_[i] & 0x80000000U) | (state_[(i + 1) % kSize] & 0x7FFFFFFFU);
    state_[i] = state_[(i + kShift) % kSize] ^ (joined >> 1) ^ ((joined & 1U) * 0x9908B0DFU);
  }
  position_ = 0;
}

std::uint32_t TorchRandom::next() {
  if (position_ == state_.size()) {
    refill();
  }
  std::uint32_t y = state_[position_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9D2C5680U;
  y ^= (y << 15) & 0xEFC60000U;
  return y ^ (y >> 18);
}

void TorchRandom::fill_normal(std::span<float> out) {
  MINIACC_REQUIRE(out.size() >= kBlock, "fill_normal: at least 16 values");
  const auto uniform = [this] { return static_cast<float>(next() & 0xFFFFFFU) * 0x1.0p-24F; };
  for (float& value : out) {
    value = uniform();
  }
  for (std::size_t first = 0; first + kBlock <= out.size(); first += kBlock) {
    transform_block(out.data() + first);
  }
  if (out.size() % kBlock != 0) {
    float* last = out.data() + (out.size() - kBlock);
    for (std::size_t i = 0; i < kBlock; ++i) {
      last[i] = uniform();
    }
    transform_block(last);
  }
}

}  // namespace miniacc
