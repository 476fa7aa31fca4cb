#pragma once

#include <span>

#include "kernels/op_context.h"

namespace miniacc::ops {

/// For each delta in order: out[:, first_row : first_row + num_rows] += scale · ((x · downᵀ) ·
/// upᵀ), the product and the sum in f32 (bf16 factors: x and scale · x · downᵀ are rounded to bf16
/// before they are multiplied).
///   x     [rows, k]        f32; rows may be strided, values of a row are contiguous
///   out   [rows, n]        f32, same rule; n >= first_row + num_rows; must not alias x
///   delta down [rank, k], up [num_rows, rank], both f32 or both bf16, contiguous
/// Workspace: on the CPU a few MiB for any number of rows, on CUDA rows · rank values and, for bf16
/// factors, one copy of x in bf16. The result does not depend on ctx.num_threads. Throws
/// InternalError on a broken contract.
/// Source: spec adapters.md §7.
void add_low_rank(OpContext& ctx, TensorView out, ConstTensorView x,
                  std::span<const LowRankDelta> deltas);
void add_low_rank(OpContext& ctx, TensorView out, ConstTensorView x, const LowRankDelta& delta);

}  // namespace miniacc::ops
