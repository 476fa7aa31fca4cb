#include "model/vision/vision_positions.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "model/vision/patches.h"

namespace miniacc {
namespace {

/// Where one coordinate of the grid falls between two rows (or columns) of the table.
struct Sample {
  std::int64_t low = 0;
  std::int64_t high = 0;
  float fraction = 0.0F;  ///< weight of high
};

std::vector<Sample> sample_axis(std::int64_t size, std::int64_t side) {
  std::vector<Sample> samples;
  for (std::int64_t i = 0; i < size; ++i) {
    // The product before the division, both in f32: as the reference rounds.
    const float at = static_cast<float>(i) * static_cast<float>(side - 1) /
                     static_cast<float>(std::max<std::int64_t>(size - 1, 1));
    const auto low = std::min(static_cast<std::int64_t>(at), side - 1);
    samples.push_back({.low = low,
                       .high = std::min(low + 1, side - 1),
                       .fraction = at - static_cast<float>(low)});
  }
  return samples;
}

}  // namespace

void add_vision_positions(TensorView x, ConstTensorView table, const VisionGrid& grid) {
  const auto side =
      static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(table.dim(0)))));
  const std::int64_t hidden = x.dim(1);
  MINIACC_REQUIRE(side * side == table.dim(0) && table.dim(1) == hidden && table.is_contiguous(),
                  "vision positions: table is a square of rows as wide as x");
  MINIACC_REQUIRE(x.dim(0) == grid.num_patches() && x.is_contiguous(),
                  "vision positions: x has a row for every patch");
  const std::vector<Sample> rows = sample_axis(grid.height, side);
  const std::vector<Sample> columns = sample_axis(grid.width, side);
  const float* values = table.f32();
  float* target = x.f32();
  for (std::int64_t row = 0; row < x.dim(0); ++row, target += hidden) {
    const PatchPosition patch = patch_position(grid, row);
    const Sample& y = rows[static_cast<std::size_t>(patch.y)];
    const Sample& c = columns[static_cast<std::size_t>(patch.x)];
    const float* low_low = values + (y.low * side + c.low) * hidden;
    const float* low_high = values + (y.low * side + c.high) * hidden;
    const float* high_low = values + (y.high * side + c.low) * hidden;
    const float* high_high = values + (y.high * side + c.high) * hidden;
    const float weights[4] = {(1.0F - y.fraction) * (1.0F - c.fraction),
                              (1.0F - y.fraction) * c.fraction, y.fraction * (1.0F - c.fraction),
                              y.fraction * c.fraction};
    for (std::int64_t i = 0; i < hidden; ++i) {
      target[i] += low_low[i] * weights[0] + low_high[i] * weights[1] + high_low[i] * weights[2] +
                   high_high[i] * weights[3];
    }
  }
}

VisionRope make_vision_rope(Device& device, const VisionGrid& grid, std::int64_t head_dim) {
  constexpr double kTheta = 10000.0;
  MINIACC_REQUIRE(head_dim > 0 && head_dim % 4 == 0, "vision rope: head_dim is a multiple of 4");
  const std::int64_t count = head_dim / 4;
  std::vector<float> frequencies;
  for (std::int64_t k = 0; k < count; ++k) {
    frequencies.push_back(static_cast<float>(
        1.0 / std::pow(kTheta, static_cast<double>(k) / static_cast<double>(count))));
  }
  const Shape shape = {grid.num_patches(), 2 * count};
  VisionRope rope{empty_tensor(device, shape), empty_tensor(device, shape)};
  float* cos = rope.cos.f32().data();
  float* sin = rope.sin.f32().data();
  for (std::int64_t row = 0; row < grid.num_patches(); ++row) {
    const PatchPosition patch = patch_position(grid, row);
    for (const std::int64_t coordinate : {patch.y, patch.x}) {
      for (const float frequency : frequencies) {
        const float angle = static_cast<float>(coordinate) * frequency;
        *cos++ = std::cos(angle);
        *sin++ = std::sin(angle);
      }
    }
  }
  return rope;
}

}  // namespace miniacc
