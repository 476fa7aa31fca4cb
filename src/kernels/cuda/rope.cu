#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ops.h"

namespace miniacc::ops::cuda {
namespace {

// Moves 8 bytes a rotated value (read and written once), and each row's cos and sin, which the
// heads share through L1; channels beyond 2n are not touched. Bound by memory. A block works on one
// row: the threads of a warp on neighbouring channels, its warps on different heads.
__global__ void __launch_bounds__(kBlock)
    rope_kernel(float* x, std::int64_t row_stride, std::int64_t head_stride, const float* cos,
                const float* sin, std::int64_t heads, std::int64_t n) {
  const std::int64_t row = blockIdx.x;
  const float* cosines = cos + row * n;
  const float* sines = sin + row * n;
  for (std::int64_t head = threadIdx.y; head < heads; head += blockDim.y) {
    float* first = x + row * row_stride + head * head_stride;
    float* second = first + n;
    for (std::int64_t i = threadIdx.x; i < n; i += kWarp) {
      const float a = first[i];
      const float b = second[i];
      first[i] = a * cosines[i] - b * sines[i];
      second[i] = b * cosines[i] + a * sines[i];
    }
  }
}

}  // namespace

void apply_rope(OpContext& ctx, TensorView x, ConstTensorView cos, ConstTensorView sin) {
  launch("apply_rope", ctx, x, dim3(grid_x(x.dim(0))), dim3(kWarp, kBlock / kWarp), rope_kernel,
         x.f32(), x.stride(0), x.stride(1), cos.f32(), sin.f32(), x.dim(1), cos.dim(1));
}

}  // namespace miniacc::ops::cuda
