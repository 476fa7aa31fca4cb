#pragma once

#include "core/tensor.h"

namespace miniacc::video_vae {

/// pixels = clamp(pixels · std[c] + mean[c], 0, 1) in place with ImageNet's statistics: from the
/// decoder's space to RGB. pixels [n, 3, H, W] f32, contiguous. Source: spec vae.md §2.5.
void to_unit_range(TensorView pixels);

/// rgb = round_half_even(255 · pixels).
///   pixels [n, 3, H, W] f32 in [0, 1] · rgb [n, H, W, 3] u8, both contiguous
void to_rgb8(TensorView rgb, ConstTensorView pixels);

/// head = previous · (1 - k/n) + head · (k/n) for frame k of n: the first frame is wholly the
/// earlier window's. Both [n, ...] f32, contiguous, of one shape. Source: spec vae.md §2.6.
void cross_fade(TensorView head, ConstTensorView previous);

}  // namespace miniacc::video_vae
