#pragma once

#include "core/tensor.h"
#include "device/device.h"
#include "model/vision/vision_grid.h"

namespace miniacc {

/// x[row] += the position table, stretched over the grid (its corners on the grid's corners) and
/// interpolated bilinearly in f32, for every patch row of the grid.
///   x      [grid.num_patches(), hidden] f32, rows in the order of patch_position()
///   table  [side², hidden] f32, row side·y + x
/// Source: spec text_encoder.md §5.2.
void add_vision_positions(TensorView x, ConstTensorView table, const VisionGrid& grid);

/// Cosines and sines of the two-dimensional rotation, [grid.num_patches(), head_dim / 2] f32 each.
struct VisionRope {
  Tensor cos;
  Tensor sin;
};

/// Of a patch at (y, x) the first half of the angles are y·f(k), the second x·f(k), with
/// f(k) = 10000^(-4k / head_dim), k < head_dim / 4. Source: spec text_encoder.md §5.4.
[[nodiscard]] VisionRope make_vision_rope(Device& device, const VisionGrid& grid,
                                          std::int64_t head_dim);

}  // namespace miniacc
