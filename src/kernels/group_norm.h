#pragma once

#include "kernels/op_context.h"

namespace miniacc::ops {

/// The group norm of every frame by itself, as factors: the normalised frame is
/// x · scale[frame] + shift[frame] with
///   scale[frame, c] = weight[c] / sqrt(var + eps), shift[frame, c] = bias[c] - mean · scale,
/// mean and biased variance over the positions and channels of the frame's group that holds c.
///   x             [frames, positions, channels] f32, contiguous
///   weight, bias  [channels] f32
///   scale, shift  [frames, channels] f32, contiguous; must not alias x
/// num_groups divides channels. Statistics are double and do not depend on ctx.num_threads. NaN or
/// infinity in a group makes its scale and shift NaN. conv3d applies the factors (NormalizedInput).
/// Source: Wu & He 2018; spec vae.md §3.3.
void group_norm_coefficients(OpContext& ctx, TensorView scale, TensorView shift, ConstTensorView x,
                             ConstTensorView weight, ConstTensorView bias, std::int64_t num_groups,
                             float eps);

}  // namespace miniacc::ops
