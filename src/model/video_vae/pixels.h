#pragma once

#include <cstdint>

#include "core/image.h"
#include "core/tensor.h"
#include "kernels/op_context.h"

namespace miniacc::video_vae {

/// pixels = clamp(pixels · std[c] + mean[c], 0, 1) in place with ImageNet's statistics: from the
/// decoder's space to RGB. pixels [n, 3, H, W] f32, contiguous. Source: spec vae.md §2.5.
void to_unit_range(OpContext& ctx, TensorView pixels);

/// Where a tile starts in a picture, in pixels.
struct TileCorner {
  std::int64_t top = 0;
  std::int64_t left = 0;
};

/// Cuts a tile out of consecutive frames and maps it to the encoder's space:
/// (rgb / 255 - mean[c]) / std[c] with ImageNet's statistics. Frames past the last one repeat it.
///   pixels  [n, tile_height, tile_width, 3] f32, contiguous; the tile lies within the picture
/// Source: spec vae.md §3.1.
void gather_pixels(TensorView pixels, const RgbClip& frames, std::int64_t first_frame,
                   const TileCorner& corner);

}  // namespace miniacc::video_vae
