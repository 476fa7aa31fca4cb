#pragma once

#include "kernels/op_context.h"

/// The products behind ops::linear on CUDA, with the operands as the matrix units take them. Free
/// of CUDA's headers.
namespace miniacc::ops::cuda {

/// Which tile of the result a block computes. kAuto takes large tiles where the result has enough
/// of them to fill a card. The choice never changes an int8 result, and a bf16 one only by the
/// order of f32 sums: not at all, as both shapes add along the depth in the same order.
enum class MatmulTile { kAuto, k64x64, k128x256 };

/// out [rows, n] f32 (rows may be strided) = x [rows, k] bf16 · w [n, k]ᵀ bf16 + bias [n] f32 (or
/// empty). x and w contiguous; where k is not a multiple of 8 or an address not of 16 bytes, the
/// operand is first copied to padded rows.
void matmul_bf16(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView w,
                 ConstTensorView bias, MatmulTile tile = MatmulTile::kAuto);

/// out = float(x · wᵀ) · (x_scale[row] · w_scale[column]) + bias, sums exact in i32.
///   x [rows, k] i8, x_scale [rows] f32, w [n, k] i8, w_scale [n] f32, all contiguous; padding as
///   above, to multiples of 16
void matmul_int8(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView x_scale,
                 ConstTensorView w, ConstTensorView w_scale, ConstTensorView bias,
                 MatmulTile tile = MatmulTile::kAuto);

}  // namespace miniacc::ops::cuda
