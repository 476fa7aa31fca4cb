#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "device/device.h"

namespace miniacc {

/// A run of presentation rows of one kind: `num_text_rows` text rows (labels, vision_start,
/// vision_end, timestamps, prompt), or one vision block of grid_height × grid_width merged tokens.
struct PresentationRun {
  std::int64_t num_text_rows = 0;
  std::int64_t grid_height = 0;  ///< 0 for text
  std::int64_t grid_width = 0;
};

/// Position of a token on the three rotary axes: time, height, width.
using MropePosition = std::array<std::int64_t, 3>;

/// Positions of the rows of all runs in order. Text advances a cursor by 1 a row; a vision block
/// has time = cursor, height and width = cursor + its row and column, and advances the cursor by
/// max(grid_height, grid_width). Source: spec text_encoder.md §4.5.
[[nodiscard]] std::vector<MropePosition> mrope_positions(std::span<const PresentationRun> runs);

/// Axis (0 time, 1 height, 2 width) of each rotary frequency: axes take turns, height and width for
/// as many frequencies as `section` gives them, time takes the rest. section sums to the number of
/// frequencies. Source: spec text_encoder.md §4.4.
[[nodiscard]] std::vector<int> mrope_axes(const std::array<std::int64_t, 3>& section);

/// Cosines and sines, [T, head_dim / 2] f32 each.
struct MropeTable {
  Tensor cos;
  Tensor sin;
};

/// angle[i] = position[axis(i)]·theta^(-2i / head_dim) in f32, head_dim = 2·sum(section).
[[nodiscard]] MropeTable make_mrope_table(Device& device, std::span<const MropePosition> positions,
                                          const std::array<std::int64_t, 3>& section, double theta);

}  // namespace miniacc
