#include "core/error.h"
#include "kernels/cuda/hopper/attention.h"
#include "kernels/cuda/hopper/matmul.h"

// For builds without code for compute capability 9.0: what a caller has to ask first says no, and a
// call without asking is a defect.
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

bool attention_available(DeviceId /*device*/) { return false; }

void attention_int8(OpContext& /*ctx*/, TensorView /*out*/, const QuantizedAttention& /*in*/,
                    float /*scale*/, AttentionSchedule /*schedule*/) {
  MINIACC_REQUIRE(false, "attention_int8: this build has no wgmma kernels");
}

void probe_scores(OpContext& /*ctx*/, TensorView /*scores*/, ConstTensorView /*q*/,
                  ConstTensorView /*k*/) {
  MINIACC_REQUIRE(false, "probe_scores: this build has no wgmma kernels");
}

void probe_values(OpContext& /*ctx*/, TensorView /*sums*/, ConstTensorView /*numerators*/,
                  ConstTensorView /*v*/) {
  MINIACC_REQUIRE(false, "probe_values: this build has no wgmma kernels");
}

}  // namespace miniacc::ops::cuda::hopper
