#pragma once

#include <cuda_runtime.h>

namespace miniacc::ops::cuda {

/// x / (1 + exp(-x)). Below -87 exp(-x) leaves the floats while the result, down to -1e-43, does
/// not: those few values are computed in double. NaN and the infinities follow the formula.
__device__ inline float silu_of(float x) {
  if (x < -87.0F) {
    const auto wide = static_cast<double>(x);
    return static_cast<float>(wide / (1.0 + exp(-wide)));
  }
  return x / (1.0F + expf(-x));
}

}  // namespace miniacc::ops::cuda
