#pragma once

#include "kernels/op_context.h"

namespace miniacc::ops {

/// out[:, first_row : first_row + num_rows] += scale · ((x · downᵀ) · upᵀ), the product and the sum
/// in f32 (bf16 factors: both activations are rounded to bf16 before they are multiplied).
///   x     [rows, k]        f32; rows may be strided, values of a row are contiguous
///   out   [rows, n]        f32, same rule; n >= first_row + num_rows; must not alias x
///   delta down [rank, k], up [num_rows, rank], both f32 or both bf16, contiguous
/// Works through the rows in chunks: the workspace is a few MiB for any number of rows. The result
/// does not depend on ctx.num_threads. Throws InternalError on a broken contract. CPU only; on
/// another device it is refused by its name.
/// Source: spec adapters.md §7.
void add_low_rank(OpContext& ctx, TensorView out, ConstTensorView x, const LowRankDelta& delta);

}  // namespace miniacc::ops
