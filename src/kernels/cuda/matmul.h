#pragma once

#include "kernels/op_context.h"

/// The products behind ops::linear on CUDA, with the operands as the matrix units take them. Free
/// of CUDA's headers.
namespace miniacc::ops::cuda {

/// The kernel of a product and the tile of the result that a block computes. The choice never
/// changes an int8 result, and a bf16 one only by the order of f32 sums (mma.sync: not at all, as
/// both its shapes add along the depth in the same order).
enum class MatmulTile {
  kAuto,
  k64x64,    ///< mma.sync, every card
  k128x256,  ///< mma.sync, every card
  // wgmma, compute capability 9.0; what they take: wgmma_takes
  kWgmma128x256,          ///< two warpgroups share a tile
  kWgmmaPingPong128x128,  ///< each of two warpgroups has its own
};

/// The name that reports and benchmarks print.
[[nodiscard]] const char* name(MatmulTile tile);

/// The order in which the wgmma forms take the tiles: in bands of `group` clusters, a band from end
/// to end along the rows of the result or along its columns. mma.sync forms have one order.
struct MatmulRaster {
  int group = 0;  ///< 0: chosen for the shape
  bool along_rows = true;
};

/// What kAuto stands for on the device of `out`. Where wgmma_takes says so: large tiles where there
/// is one for each multiprocessor, the smaller ones where half of the multiprocessors get one. Else
/// mma.sync, large tiles where the result has enough of them to fill a card.
[[nodiscard]] MatmulTile chosen_tile(ConstTensorView out);

/// Whether the wgmma forms take a product with this result: the build has them, the card's compute
/// capability is 9.0, and the copy engine can write `out`: columns and row stride multiples of 4,
/// address of 16 bytes, no side longer than 2^31 - 1. (The operands always fit, after padding.)
[[nodiscard]] bool wgmma_takes(ConstTensorView out);

/// out = factor · x · wᵀ + bias, or that added to what is in out. f32; rows of out and x may be
/// strided, bias may be empty.
struct ProductUse {
  float factor = 1.0F;
  bool accumulate = false;
};
void matmul_f32(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView w,
                ConstTensorView bias, ProductUse use = {});

/// A contiguous bf16 copy of an f32 matrix, whose rows may be strided.
[[nodiscard]] Tensor round_rows_to_bf16(OpContext& ctx, ConstTensorView x);

/// out [rows, n] f32 (rows may be strided) = x [rows, k] bf16 · w [n, k]ᵀ bf16 + bias [n] f32 (or
/// empty). x and w contiguous; where k is not a multiple of 8 or an address not of 16 bytes, the
/// operand is first copied to padded rows.
void matmul_bf16(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView w,
                 ConstTensorView bias, MatmulTile tile = MatmulTile::kAuto,
                 MatmulRaster raster = {});

/// out = float(x · wᵀ) · (x_scale[row] · w_scale[column]) + bias, sums exact in i32.
///   x [rows, k] i8, x_scale [rows] f32, w [n, k] i8, w_scale [n] f32, all contiguous; padding as
///   above, to multiples of 16
/// Both throw InternalError where `tile` names a form that does not take the product.
void matmul_int8(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView x_scale,
                 ConstTensorView w, ConstTensorView w_scale, ConstTensorView bias,
                 MatmulTile tile = MatmulTile::kAuto, MatmulRaster raster = {});

}  // namespace miniacc::ops::cuda
