#include "core/error.h"
#include "kernels/cuda/hopper/matmul.h"

namespace miniacc::ops::cuda::hopper {

int multiprocessors(int /*ordinal*/) { return 0; }

void matmul_bf16(OpContext& /*ctx*/, TensorView /*out*/, const Operands& /*operands*/,
                 MatmulTile /*tile*/, MatmulRaster /*raster*/) {
  MINIACC_REQUIRE(false, "linear: this build has no wgmma kernels");
}

void matmul_int8(OpContext& /*ctx*/, TensorView /*out*/, const Operands& /*operands*/,
                 const float* /*x_scale*/, const float* /*w_scale*/, MatmulTile /*tile*/,
                 MatmulRaster /*raster*/) {
  MINIACC_REQUIRE(false, "linear: this build has no wgmma kernels");
}

}  // namespace miniacc::ops::cuda::hopper
