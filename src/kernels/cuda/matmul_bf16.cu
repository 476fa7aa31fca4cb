#include "kernels/cuda/aligned_rows.cuh"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/matmul_tile.cuh"

namespace miniacc::ops::cuda {
namespace {

struct BiasEpilogue {
  OutputRows out;
  const float* bias;  ///< may be null

  __device__ void store(std::int64_t row, std::int64_t column, float first, float second) const {
    if (bias != nullptr) {
      first += bias[column];
      second += column + 1 < out.columns ? bias[column + 1] : 0.0F;
    }
    out.store(row, column, first, second);
  }
};

}  // namespace

void matmul_bf16(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView w,
                 ConstTensorView bias, MatmulTile tile) {
  const AlignedRows a = aligned_rows(ctx, x);
  const AlignedRows b = aligned_rows(ctx, w);
  const MatmulOperands operands = {a.data,     b.data,     a.row_bytes, b.row_bytes,
                                   out.dim(0), out.dim(1), a.row_bytes};
  const BiasEpilogue epilogue = {output_rows(out), bias.empty() ? nullptr : bias.f32()};
  if (wants_large_tiles(out, tile)) {
    launch_matmul<Bf16Product, LargeShape>("linear", ctx, out, operands, epilogue);
  } else {
    launch_matmul<Bf16Product, SmallShape>("linear", ctx, out, operands, epilogue);
  }
}

}  // namespace miniacc::ops::cuda
