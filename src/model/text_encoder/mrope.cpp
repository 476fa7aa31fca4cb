#include "model/text_encoder/mrope.h"

#include <algorithm>
#include <cmath>

#include "kernels/copy.h"

namespace miniacc {

std::vector<MropePosition> mrope_positions(std::span<const PresentationRun> runs) {
  std::vector<MropePosition> positions;
  std::int64_t cursor = 0;
  for (const PresentationRun& run : runs) {
    const bool is_text = run.grid_height == 0 && run.grid_width == 0;
    MINIACC_REQUIRE(is_text ? run.num_text_rows >= 0
                            : run.num_text_rows == 0 && run.grid_height > 0 && run.grid_width > 0,
                    "mrope positions: a run is text or one vision block");
    for (std::int64_t row = 0; row < run.num_text_rows; ++row, ++cursor) {
      positions.push_back({cursor, cursor, cursor});
    }
    for (std::int64_t y = 0; y < run.grid_height; ++y) {
      for (std::int64_t x = 0; x < run.grid_width; ++x) {
        positions.push_back({cursor, cursor + y, cursor + x});
      }
    }
    cursor += std::max(run.grid_height, run.grid_width);
  }
  return positions;
}

std::vector<int> mrope_axes(const std::array<std::int64_t, 3>& section) {
  const std::int64_t count = section[0] + section[1] + section[2];
  std::vector<int> axes(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto turn = static_cast<int>(i % 3);
    const bool in_section = i < 3 * section[static_cast<std::size_t>(turn)];
    axes[static_cast<std::size_t>(i)] = in_section ? turn : 0;
  }
  return axes;
}

MropeTable make_mrope_table(Device& device, std::span<const MropePosition> positions,
                            const std::array<std::int64_t, 3>& section, double theta) {
  const std::vector<int> axes = mrope_axes(section);
  std::vector<float> inv_freq(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    inv_freq[i] = static_cast<float>(
        1.0 / std::pow(theta, static_cast<double>(i) / static_cast<double>(axes.size())));
  }
  const Shape shape = {static_cast<std::int64_t>(positions.size()),
                       static_cast<std::int64_t>(axes.size())};
  std::vector<float> cosines(positions.size() * axes.size());
  std::vector<float> sines(cosines.size());
  std::size_t out = 0;
  for (const MropePosition& position : positions) {
    for (std::size_t i = 0; i < axes.size(); ++i, ++out) {
      const auto coordinate = static_cast<float>(position[static_cast<std::size_t>(axes[i])]);
      cosines[out] = std::cos(coordinate * inv_freq[i]);
      sines[out] = std::sin(coordinate * inv_freq[i]);
    }
  }
  OpContext ctx{.device = device};
  return {upload(ctx, std::span<const float>(cosines), shape),
          upload(ctx, std::span<const float>(sines), shape)};
}

}  // namespace miniacc
