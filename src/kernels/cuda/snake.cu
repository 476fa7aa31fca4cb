#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ops.h"

namespace miniacc::ops::cuda {
namespace {

constexpr int kTaps = 12;

// Moves 8 bytes a value; bound by memory, or by the sine where its argument is large. One value a
// thread. out may be x.
__global__ void __launch_bounds__(kBlock)
    snake_kernel(float* out, const float* x, const float* alpha, std::int64_t channels,
                 std::int64_t length, std::int64_t size) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (i >= size) {
    return;
  }
  const float frequency = alpha[i / length % channels];
  const float sine = sinf(frequency * x[i]);
  out[i] = x[i] + 1.0F / (frequency + 1e-9F) * sine * sine;
}

// Moves 8 bytes a value and takes two sines and 48 operations for it. A block makes kBlock
// consecutive outputs of one row: their inputs, six further to both sides, and the doubled signal,
// three pairs further, pass through shared memory.
__global__ void __launch_bounds__(kBlock)
    antialiased_snake_kernel(float* out, const float* x, const float* alpha, const float* beta,
                             const float* up_filter, const float* down_filter,
                             std::int64_t channels, std::int64_t length, std::int64_t pieces) {
  constexpr int kReach = 6;
  constexpr int kPairs = kBlock + kReach;  // doubled samples q = first - 3 .. first + kBlock + 2
  __shared__ float near[kBlock + 2 * kReach];
  __shared__ float even[kPairs];
  __shared__ float odd[kPairs];
  __shared__ float up[kTaps];
  __shared__ float down[kTaps];
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) / pieces;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) % pieces * kBlock;
  const int thread = static_cast<int>(threadIdx.x);
  const float* source = x + row * length;
  const auto inside = [length](std::int64_t at) {
    return at < 0 ? 0 : at >= length ? length - 1 : at;
  };
  for (int i = thread; i < kBlock + 2 * kReach; i += kBlock) {
    near[i] = source[inside(first - kReach + i)];
  }
  if (thread < kTaps) {
    up[thread] = up_filter[thread];
    down[thread] = down_filter[thread];
  }
  __syncthreads();
  const float frequency = expf(alpha[row % channels]);
  const float inverse_magnitude = 1.0F / (expf(beta[row % channels]) + 1e-9F);
  for (int i = thread; i < kPairs; i += kBlock) {
    // y[m] = 2·Σ f[m + 5 - 2i]·x[i], split by parity: near[i + j] is x[q - 3 + j].
    float a = 0.0F;
    float b = 0.0F;
    for (int j = 0; j < kTaps / 2; ++j) {
      a += up[kTaps - 1 - 2 * j] * near[i + j];
      b += up[kTaps - 2 - 2 * j] * near[i + 1 + j];
    }
    a *= 2.0F;
    b *= 2.0F;
    const float sine_a = sinf(frequency * a);
    const float sine_b = sinf(frequency * b);
    even[i] = a + inverse_magnitude * sine_a * sine_a;
    odd[i] = b + inverse_magnitude * sine_b * sine_b;
  }
  __syncthreads();
  const std::int64_t position = first + thread;
  if (position >= length) {
    return;
  }
  // Sample m of the doubled signal, which repeats its first and last value beyond its ends.
  const auto doubled = [&](std::int64_t m) {
    const std::int64_t within = m < 0 ? 0 : m >= 2 * length ? 2 * length - 1 : m;
    const std::int64_t pair = within / 2 - first + 3;
    return within % 2 == 0 ? even[pair] : odd[pair];
  };
  float sum = 0.0F;
  for (int k = 0; k < kTaps; ++k) {
    sum += down[k] * doubled(2 * position + k - 5);
  }
  out[row * length + position] = sum;
}

}  // namespace

void snake(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView alpha) {
  const std::int64_t size = x.num_elements();
  launch("snake", ctx, out, dim3(grid_x(div_up(size, kBlock))), dim3(kBlock), snake_kernel,
         out.f32(), x.f32(), alpha.f32(), x.dim(1), x.dim(2), size);
}

void antialiased_snake_beta(OpContext& ctx, TensorView out, ConstTensorView x,
                            ConstTensorView alpha, ConstTensorView beta, ConstTensorView up_filter,
                            ConstTensorView down_filter) {
  const std::int64_t pieces = div_up(x.dim(2), kBlock);
  launch("antialiased_snake_beta", ctx, out, dim3(grid_x(x.dim(0) * x.dim(1) * pieces)),
         dim3(kBlock), antialiased_snake_kernel, out.f32(), x.f32(), alpha.f32(), beta.f32(),
         up_filter.f32(), down_filter.f32(), x.dim(1), x.dim(2), pieces);
}

}  // namespace miniacc::ops::cuda
