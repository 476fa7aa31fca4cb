#pragma once

#include "kernels/op_context.h"

namespace miniacc::ops {

/// out = x · Wᵀ + bias.
///   x     [rows, k]  f32; rows may be strided, values of a row are contiguous
///   out   [rows, n]  f32, same rule; must not alias x
///   w     [n, k]     f32 (f32 product), bf16 (x rounded to bf16, f32 accumulation) or i8 (x
///   rotated
///                    if w.rotation_group says so, then quantised per row to i8; i32 accumulation;
///                    result times both scales)
///   bias  [n] f32 or empty
/// w.low_rank is added to that in f32, in order (kernels/low_rank.h), from x as it is given.
///
/// i8 products are exact on every CPU (k up to 2^17). A row of x with NaN or infinity gives a row
/// of NaN there. The result of a product does not depend on ctx.num_threads (checked bit by bit in
/// tests/kernels/linear_test.cpp). On CUDA i8 products are exact too and give the CPU's bits for
/// the same quantised operands. Throws InternalError on a broken contract.
void linear(OpContext& ctx, TensorView out, ConstTensorView x, const WeightMatrix& w,
            ConstTensorView bias = {});

/// Per-row symmetric quantisation: scale[r] = max|x[r]| / 127 (1 for a row of zeros),
/// out[r, c] = round_half_even(x[r, c] / scale[r]). A row with NaN or infinity becomes zeros with a
/// NaN scale, so that the trouble stays visible downstream.
///   x [rows, k] f32 · out [rows, k] i8 · scale [rows] f32, all contiguous
void quantize_rows(OpContext& ctx, TensorView out, TensorView scale, ConstTensorView x);

/// x ← x · H over consecutive groups of `group` columns, H the normalised Hadamard-like matrix of
/// ConvRot: the Kronecker power of [[1,1,1,-1],[1,1,-1,1],[1,-1,1,1],[-1,1,1,1]] over sqrt(group).
/// H is symmetric and orthogonal, so applying it twice gives x back.
///   x [rows, k] f32 contiguous, k a multiple of group, group a power of 4, on CUDA at most 4096
/// Source: spec model.md §2.5.
void rotate_rows(OpContext& ctx, TensorView x, std::int64_t group);

}  // namespace miniacc::ops
