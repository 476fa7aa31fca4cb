#include "kernels/cuda/hopper/bias.cuh"
#include "kernels/cuda/hopper/product.cuh"

namespace miniacc::ops::cuda::hopper {
namespace {

/// The operations of the mma.sync form's epilogue in its order, none fused with the next.
template <class Values>
struct ScaleSums;
template <int kCount>
struct ScaleSums<cutlass::Array<float, kCount>> {
  using Values = cutlass::Array<float, kCount>;
  CUTLASS_DEVICE Values operator()(const Values& sums, const Values& row_scale,
                                   const Values& column_scale, const Values& bias) const {
    Values result;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kCount; ++i) {
      result[i] = __fadd_rn(__fmul_rn(sums[i], __fmul_rn(row_scale[i], column_scale[i])), bias[i]);
    }
    return result;
  }
};

template <class FormType>
void launch(OpContext& ctx, TensorView out, const Operands& operands, const float* x_scale,
            const float* w_scale, MatmulRaster raster) {
  using Tile = typename FormType::template Tile<std::int8_t>;
  using Node = epilogue::fusion::Sm90Compute<ScaleSums, float, float,
                                             cutlass::FloatRoundStyle::round_to_nearest>;
  using Callbacks = epilogue::fusion::Sm90EVT<Node, epilogue::fusion::Sm90AccFetch, PerRow<Tile>,
                                              PerColumn<Tile>, Bias>;
  const typename Callbacks::Arguments callbacks = {{}, {x_scale}, {w_scale}, {operands.bias}, {}};
  Product<std::int8_t, std::int32_t, FormType, Callbacks>::launch(ctx, out, operands, callbacks,
                                                                  raster);
}

}  // namespace

void matmul_int8(OpContext& ctx, TensorView out, const Operands& operands, const float* x_scale,
                 const float* w_scale, MatmulTile tile, MatmulRaster raster) {
  with_form(tile, [&]<class FormType>(FormType) {
    launch<FormType>(ctx, out, operands, x_scale, w_scale, raster);
  });
}

}  // namespace miniacc::ops::cuda::hopper
