#include "model/video_vae/rope_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/copy.h"

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
  const auto size = static_cast<std::size_t>(rows * width);
  std::vector<float> cosines(size, 1.0F);
  std::vector<float> sines(size, 0.0F);
  const std::array<std::int64_t, 3> sizes = {tile.t, tile.h, tile.w};
  std::size_t at = 0;
  for (std::int64_t token = 0; token < tile.num_tokens(); ++token) {
    const std::array<std::int64_t, 3> index = {token / (tile.h * tile.w), token / tile.w % tile.h,
                                               token % tile.w};
    for (std::size_t axis = 0; axis < 3; ++axis) {
      for (const double frequency : inverse) {
        const double angle =
            2.0 * std::numbers::pi * axis_coordinate(index[axis], sizes[axis]) * frequency;
        cosines[at] = static_cast<float>(std::cos(angle));
        sines[at] = static_cast<float>(std::sin(angle));
        ++at;
      }
    }
  }
  OpContext ctx{.device = device};
  return {.cos = upload(ctx, std::span<const float>(cosines), {rows, width}),
          .sin = upload(ctx, std::span<const float>(sines), {rows, width})};
}

}  // namespace miniacc::video_vae
