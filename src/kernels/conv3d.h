#pragma once

#include "kernels/op_context.h"

namespace miniacc::ops {

/// silu(x · scale + shift) with one scale and shift a frame and channel: what a group norm and the
/// activation behind it make of a convolution's input (scale and shift from
/// group_norm_coefficients). Applied while the padded copy of x is made, so that the normalised
/// frames are never stored.
struct NormalizedInput {
  ConstTensorView scale;  ///< [batch·frames, in] f32, contiguous
  ConstTensorView shift;  ///< [batch·frames, in] f32, contiguous
};

struct Conv3dOptions {
  std::int64_t stride_t = 1;
  std::int64_t stride_hw = 1;      ///< of height and width
  std::int64_t past_frames = 0;    ///< frames of zeros in front of the first; none behind the last
  std::int64_t pad_before = 0;     ///< rows and columns reflected at the top and the left
  std::int64_t pad_after = 0;      ///< rows and columns reflected at the bottom and the right
  NormalizedInput normalize = {};  ///< empty: x as it is
  bool accumulate = false;         ///< add to what out holds instead of replacing it
};

/// Cross-correlation over time, height and width of channels-last frames.
///   x       [batch, frames, height, width, in]
///   weight  [out, in, kernel_t, kernel_h, kernel_w] · bias [out] or empty
///   out     [batch, (frames + past_frames - kernel_t) / stride_t + 1,
///            (height + pad_before + pad_after - kernel_h) / stride_hw + 1, same for width, out]
/// f32, contiguous; out must not alias x. Reflection leaves out the edge itself: row -1 is row 1,
/// row height is row height - 2; the axis must be longer than the padding. Frames of zeros are zero
/// on their border too. past_frames < kernel_t. Scratch memory: the packed weights and padded
/// frames of at most 64 MiB (or of one output frame, where that is more). Checks ctx.cancel between
/// groups of frames. Source: spec vae.md §3.2, §3.5.
void conv3d(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
            ConstTensorView bias, const Conv3dOptions& options);

}  // namespace miniacc::ops
