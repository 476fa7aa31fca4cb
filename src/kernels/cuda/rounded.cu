#include "kernels/cuda/matmul.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/silu.cuh"

namespace miniacc::ops::cuda {
namespace {

// Moves 6 bytes a value (4 read, 2 written) plus the weight, which stays in L2; the second reading
// of x comes from L1. Bound by memory. Squares are summed in double, as in rms_norm.
template <int kThreads>
__global__ void __launch_bounds__(kBlock)
    rms_norm_rounded_kernel(std::uint32_t* out, const float* x, const float* weight,
                            std::int64_t rows, std::int64_t size, float eps) {
  const std::int64_t row = row_of_thread();
  if (row >= rows) {
    return;  // a whole warp
  }
  const auto* source = reinterpret_cast<const float2*>(x + row * size);
  const auto* weights = reinterpret_cast<const float2*>(weight);
  std::uint32_t* target = out + row * (size / 2);
  double squares = 0.0;
  for (std::int64_t i = threadIdx.x; i < size / 2; i += kThreads) {
    const float2 two = source[i];
    squares += static_cast<double>(two.x) * static_cast<double>(two.x) +
               static_cast<double>(two.y) * static_cast<double>(two.y);
  }
  const double mean = row_sum<kThreads>(squares) / static_cast<double>(size);
  const auto factor = static_cast<float>(1.0 / sqrt(mean + static_cast<double>(eps)));
  for (std::int64_t i = threadIdx.x; i < size / 2; i += kThreads) {
    const float2 two = source[i];
    const float2 by = weights[i];
    target[i] = ptx::pack_bf16(two.x * factor * by.x, two.y * factor * by.y);
  }
}

// Moves 10 bytes a value (8 read, 2 written); bound by memory. Two neighbours a thread.
__global__ void __launch_bounds__(kBlock)
    silu_mul_rounded_kernel(std::uint32_t* out, const float* gate, std::int64_t gate_stride,
                            const float* value, std::int64_t value_stride, std::int64_t size) {
  const std::int64_t row = blockIdx.x;
  const auto* gates = reinterpret_cast<const float2*>(gate + row * gate_stride);
  const auto* values = reinterpret_cast<const float2*>(value + row * value_stride);
  std::uint32_t* target = out + row * (size / 2);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * kBlock;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.y) * kBlock + threadIdx.x; i < size / 2;
       i += step) {
    const float2 g = gates[i];
    const float2 v = values[i];
    target[i] = ptx::pack_bf16(silu_of(g.x) * v.x, silu_of(g.y) * v.y);
  }
}

// Moves 10 bytes a value (4 read, 6 written); bound by memory.
__global__ void __launch_bounds__(kBlock)
    split_rows_kernel(std::uint32_t* out, const float* x, std::int64_t size, bool activation) {
  const std::int64_t row = blockIdx.x;
  const auto* source = reinterpret_cast<const float2*>(x + row * size);
  const std::int64_t pairs = size / 2;
  std::uint32_t* target = out + 3 * row * pairs;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * kBlock;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.y) * kBlock + threadIdx.x; i < pairs;
       i += step) {
    const float2 two = source[i];
    const std::uint32_t high = ptx::pack_bf16(two.x, two.y);
    const float first = __uint_as_float(high << 16);
    const float second = __uint_as_float(high & 0xFFFF0000U);
    const std::uint32_t low = ptx::pack_bf16(two.x - first, two.y - second);
    target[i] = high;
    target[pairs + i] = activation ? high : low;
    target[2 * pairs + i] = activation ? low : high;
  }
}

}  // namespace

void rms_norm_rounded(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                      float eps) {
  launch_rows("rms_norm_rounded", ctx, out, x.dim(0), x.dim(1), rms_norm_rounded_kernel<kWarp>,
              rms_norm_rounded_kernel<kBlock>, static_cast<std::uint32_t*>(out.data), x.f32(),
              weight.f32(), x.dim(0), x.dim(1), eps);
}

void silu_mul_rounded(OpContext& ctx, TensorView out, ConstTensorView gate, ConstTensorView value) {
  launch("silu_mul_rounded", ctx, out, row_grid(out.dim(0), out.dim(1) / 2), dim3(kBlock),
         silu_mul_rounded_kernel, static_cast<std::uint32_t*>(out.data), gate.f32(), gate.stride(0),
         value.f32(), value.stride(0), out.dim(1));
}

void split_rows(OpContext& ctx, TensorView out, ConstTensorView x, SplitSide side) {
  launch("split_rows", ctx, out, row_grid(x.dim(0), x.dim(1) / 2), dim3(kBlock), split_rows_kernel,
         static_cast<std::uint32_t*>(out.data), x.f32(), x.dim(1), side == SplitSide::kActivation);
}

void linear_rounded(OpContext& ctx, TensorView out, ConstTensorView x, const WeightMatrix& w,
                    ConstTensorView bias) {
  matmul_bf16(ctx, out, x, w.values, bias);
}

}  // namespace miniacc::ops::cuda
