#include "kernels/cuda/aligned_rows.cuh"
#include "kernels/cuda/hopper/matmul.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/matmul_choice.h"
#include "kernels/cuda/matmul_tile.cuh"

namespace miniacc::ops::cuda {
namespace {

/// The operations and their order are the CPU's, and none may be fused with the next: results are
/// the CPU's bit for bit.
struct ScaleEpilogue {
  OutputRows out;
  const float* row_scale;
  const float* column_scale;
  const float* bias;  ///< may be null

  __device__ float value(std::int32_t sum, float scale, std::int64_t column) const {
    const float product =
        __fmul_rn(static_cast<float>(sum), __fmul_rn(scale, column_scale[column]));
    return bias == nullptr ? product : __fadd_rn(product, bias[column]);
  }

  __device__ void store(std::int64_t row, std::int64_t column, std::int32_t first,
                        std::int32_t second) const {
    const float scale = row_scale[row];
    const std::int64_t next = column + 1 < out.columns ? column + 1 : column;
    out.store(row, column, value(first, scale, column), value(second, scale, next));
  }
};

}  // namespace

void matmul_int8(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView x_scale,
                 ConstTensorView w, ConstTensorView w_scale, ConstTensorView bias, MatmulTile tile,
                 MatmulRaster raster) {
  const MatmulTile form = resolved(tile, out);
  const AlignedRows a = aligned_rows(ctx, x);
  const AlignedRows b = aligned_rows(ctx, w);
  if (is_wgmma(form)) {
    const hopper::Operands wgmma = {a.data, b.data, a.row_bytes,
                                    bias.empty() ? nullptr : bias.f32()};
    hopper::matmul_int8(ctx, out, wgmma, x_scale.f32(), w_scale.f32(), form,
                        resolved(raster, form, out));
    return;
  }
  const MatmulOperands operands = {a.data,     b.data,     a.row_bytes, b.row_bytes,
                                   out.dim(0), out.dim(1), a.row_bytes};
  const ScaleEpilogue epilogue = {output_rows(out), x_scale.f32(), w_scale.f32(),
                                  bias.empty() ? nullptr : bias.f32()};
  if (form == MatmulTile::k128x256) {
    launch_matmul<Int8Product, LargeShape>("linear", ctx, out, operands, epilogue);
  } else {
    launch_matmul<Int8Product, SmallShape>("linear", ctx, out, operands, epilogue);
  }
}

}  // namespace miniacc::ops::cuda
