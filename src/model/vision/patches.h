#pragma once

#include <cstdint>
#include <span>

#include "core/image.h"
#include "core/tensor.h"
#include "device/device.h"
#include "model/vision/vision_grid.h"

namespace miniacc {

/// Values of a patch row: 3 channels × 2 frames × 16 × 16 pixels.
inline constexpr std::int64_t kPatchRowSize = 1536;

/// Patch (y, x) of row `row` of a grid. Blocks of 2×2 patches follow in raster order, the patches
/// of a block as well, so that 4 consecutive rows become one token. Source: spec text_encoder.md
/// §5.3.
struct PatchPosition {
  std::int64_t y = 0;
  std::int64_t x = 0;
};
[[nodiscard]] PatchPosition patch_position(const VisionGrid& grid, std::int64_t row);

/// Grid of a picture whose sides are multiples of 32 (else InternalError).
[[nodiscard]] VisionGrid grid_of(const RgbImage& image);

/// Rows [first, first + out rows) of what the tower reads: pixels as p/127.5 - 1, computed as
/// (p - 127.5)/127.5 in f32; the value of channel c, frame s, pixel (y, x) of the patch is at
/// ((c·2 + s)·16 + y)·16 + x.
///   frames  one picture, which stands for both frames, or the two frames of a pair, of one size
///           with sides that are multiples of 32 (else InternalError)
///   out     [rows, 1536] f32, contiguous, host memory
/// Source: spec text_encoder.md §5.1, §6.3, §6.4.
void write_patch_rows(std::span<const RgbImage> frames, std::int64_t first, TensorView out);

/// All rows: [grid.num_patches(), 1536] f32.
[[nodiscard]] Tensor patch_rows(Device& device, std::span<const RgbImage> frames);

}  // namespace miniacc
