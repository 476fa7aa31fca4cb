#pragma once

#include "kernels/op_context.h"

namespace miniacc::ops {

/// out = x / sqrt(mean(x², last dim) + eps) * weight.
///   x, out  [..., hidden] f32; last dim contiguous, out may alias x. Rank 2 or 3 (e.g. [rows,
///   heads,
///           head_dim] with the weight shared by all heads)
///   weight  [hidden] f32, or empty for no weight
/// Source: Zhang & Sennrich 2019, eq. 4, with eps added under the root.
void rms_norm(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight, float eps);

/// out = rms_norm(x) * (1 + scale[index[row]]) + shift[index[row]]: the AdaLN-modulated norm.
///   x, out        [rows, hidden] f32, contiguous; may alias
///   weight        [hidden] f32
///   shift, scale  [table_rows, hidden] f32; table rows may be strided
///   index         [rows] i32, each in [0, table_rows): the CPU throws InternalError for another,
///                 CUDA, whose host cannot see it, makes the row NaN; neither reads outside the
///                 table
/// Source: spec model.md §3.4.
void modulated_rms_norm(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                        ConstTensorView shift, ConstTensorView scale, ConstTensorView index,
                        float eps);

/// out = (x - mean) / sqrt(var + eps) * weight + bias over the last dim (biased variance).
///   x, out [rows, hidden] f32, contiguous; may alias · weight, bias [hidden] f32
/// Source: Ba et al. 2016.
void layer_norm(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                ConstTensorView bias, float eps);

}  // namespace miniacc::ops
