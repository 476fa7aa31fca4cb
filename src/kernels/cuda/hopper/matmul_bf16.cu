#include "kernels/cuda/hopper/bias.cuh"
#include "kernels/cuda/hopper/product.cuh"

namespace miniacc::ops::cuda::hopper {
namespace {

template <class FormType>
void launch(OpContext& ctx, TensorView out, const Operands& operands, MatmulRaster raster) {
  using Node = epilogue::fusion::Sm90Compute<cutlass::plus, float, float,
                                             cutlass::FloatRoundStyle::round_to_nearest>;
  using Callbacks = epilogue::fusion::Sm90EVT<Node, epilogue::fusion::Sm90AccFetch, Bias>;
  const typename Callbacks::Arguments callbacks = {{}, {operands.bias}, {}};
  Product<cutlass::bfloat16_t, float, FormType, Callbacks>::launch(ctx, out, operands, callbacks,
                                                                   raster);
}

}  // namespace

void matmul_bf16(OpContext& ctx, TensorView out, const Operands& operands, MatmulTile tile,
                 MatmulRaster raster) {
  with_form(tile, [&]<class FormType>(FormType) { launch<FormType>(ctx, out, operands, raster); });
}

int multiprocessors(int ordinal) {
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    miniacc::cuda::check(cudaDeviceGetAttribute(&value, which, ordinal), "linear");
    return value;
  };
  return attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
                 attribute(cudaDevAttrComputeCapabilityMinor) == 0
             ? attribute(cudaDevAttrMultiProcessorCount)
             : 0;
}

}  // namespace miniacc::ops::cuda::hopper
