#include "model/video_vae/rope_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

namespace miniacc::video_vae {

double axis_coordinate(std::int64_t index, std::int64_t size) {
  return 2.0 * (static_cast<double>(index) + 0.5) / static_cast<double>(size) - 1.0;
}

RopeTable make_rope_table(const VideoVaeConfig& config, const TileShape& tile, Device& device) {
  const std::int64_t frequencies = config.num_rope_frequencies;
  const std::int64_t width = 3 * frequencies;
  std::vector<double> inverse(static_cast<std::size_t>(frequencies));
  for (std::int64_t k = 0; k < frequencies; ++k) {
    inverse[static_cast<std::size_t>(k)] =
        std::pow(config.rope_theta, -static_cast<double>(k) / static_cast<double>(frequencies));
  }
  const std::int64_t rows = tile.num_tokens() + config.num_suffix_tokens();
  RopeTable table{.cos = empty_tensor(device, {rows, width}),
                  .sin = empty_tensor(device, {rows, width})};
  std::fill(table.cos.f32().begin(), table.cos.f32().end(), 1.0F);
  std::fill(table.sin.f32().begin(), table.sin.f32().end(), 0.0F);
  const std::array<std::int64_t, 3> sizes = {tile.t, tile.h, tile.w};
  std::size_t at = 0;
  for (std::int64_t token = 0; token < tile.num_tokens(); ++token) {
    const std::array<std::int64_t, 3> index = {token / (tile.h * tile.w), token / tile.w % tile.h,
                                               token % tile.w};
    for (std::size_t axis = 0; axis < 3; ++axis) {
      for (const double frequency : inverse) {
        const double angle =
            2.0 * std::numbers::pi * axis_coordinate(index[axis], sizes[axis]) * frequency;
        table.cos.f32()[at] = static_cast<float>(std::cos(angle));
        table.sin.f32()[at] = static_cast<float>(std::sin(angle));
        ++at;
      }
    }
  }
  return table;
}

}  // namespace miniacc::video_vae
