#include "kernels/cuda/aligned_rows.cuh"
#include "kernels/cuda/hopper/matmul.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/matmul_choice.h"
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
                 ConstTensorView bias, MatmulTile tile, MatmulRaster raster) {
  const MatmulTile form = resolved(tile, out);
  const AlignedRows a = aligned_rows(ctx, x);
  const AlignedRows b = aligned_rows(ctx, w);
  if (is_wgmma(form)) {
    const hopper::Operands wgmma = {a.data, b.data, a.row_bytes / 2,
                                    bias.empty() ? nullptr : bias.f32()};
    hopper::matmul_bf16(ctx, out, wgmma, form, resolved(raster, form, out));
    return;
  }
  const MatmulOperands operands = {a.data,     b.data,     a.row_bytes, b.row_bytes,
                                   out.dim(0), out.dim(1), a.row_bytes};
  const BiasEpilogue epilogue = {output_rows(out), bias.empty() ? nullptr : bias.f32()};
  if (form == MatmulTile::k128x256) {
    launch_matmul<Bf16Product, LargeShape>("linear", ctx, out, operands, epilogue);
  } else {
    launch_matmul<Bf16Product, SmallShape>("linear", ctx, out, operands, epilogue);
  }
}

}  // namespace miniacc::ops::cuda
