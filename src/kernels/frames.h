#pragma once

#include <array>
#include <cstdint>

#include "kernels/op_context.h"

/// From the values of decoded tiles to pictures.
namespace miniacc::ops {

/// A tile of t x h x w cells in a canvas. A cell holds `frames` frames of patch x patch pixels.
struct PatchPlacement {
  std::int64_t t = 0;
  std::int64_t h = 0;
  std::int64_t w = 0;
  std::int64_t frames = 0;
  std::int64_t patch = 0;
  std::int64_t top = 0;  ///< of the tile in the canvas, in pixels
  std::int64_t left = 0;
  ConstTensorView frame_index = {};  ///< [t·frames] i32: frame of the canvas, below 0: not shown
  ConstTensorView weights = {};      ///< [h·patch, w·patch] f32: share of the tile in each pixel
};

/// Adds a tile to a canvas of its frames: canvas += weights · pixels. Tiles that overlap add in the
/// order of the calls: a fixed order gives a reproducible picture. Pixels of weight 0 stay.
///   canvas  [n, 3, H, W] f32, contiguous
///   values  [t·h·w, 3·frames·patch·patch] f32, contiguous; cells ordered t, h, w, a cell [3,
///   frames,
///           patch, patch]
/// frame_index is below n: the CPU throws InternalError for another, CUDA leaves it out.
void add_patches(OpContext& ctx, TensorView canvas, ConstTensorView values,
                 const PatchPlacement& place);

/// head = previous · (1 - k/n) + head · (k/n) for frame k of n: the first frame is wholly the
/// earlier window's.   head, previous [n, ...] f32, contiguous, of one shape
void cross_fade(OpContext& ctx, TensorView head, ConstTensorView previous);

/// What brings a channel of a network's pictures to [0, 1].
struct ChannelScale {
  std::array<float, 3> scale = {};
  std::array<float, 3> offset = {};
};
/// pixels = clamp(pixels · scale[c] + offset[c], 0, 1) in place.   pixels [n, 3, H, W] f32
void scale_to_unit(OpContext& ctx, TensorView pixels, const ChannelScale& scale);

/// rgb = round_half_even(255 · pixels).
///   pixels [n, 3, H, W] f32 in [0, 1] · rgb [n, H, W, 3] u8, both contiguous
void to_rgb8(OpContext& ctx, TensorView rgb, ConstTensorView pixels);

}  // namespace miniacc::ops
