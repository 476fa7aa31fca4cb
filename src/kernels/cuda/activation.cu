#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/silu.cuh"

namespace miniacc::ops::cuda {
namespace {

// Moves 12 bytes a value (two read, one written); bound by memory. A block works on one row, blocks
// along y share its columns.
__global__ void __launch_bounds__(kBlock)
    silu_mul_kernel(float* out, std::int64_t out_stride, const float* gate,
                    std::int64_t gate_stride, const float* value, std::int64_t value_stride,
                    std::int64_t size) {
  const std::int64_t row = blockIdx.x;
  const float* gates = gate + row * gate_stride;
  const float* values = value + row * value_stride;
  float* target = out + row * out_stride;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * kBlock;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.y) * kBlock + threadIdx.x; i < size;
       i += step) {
    target[i] = silu_of(gates[i]) * values[i];
  }
}

// Moves 8 bytes a value; bound by memory. One value a thread.
__global__ void __launch_bounds__(kBlock)
    silu_kernel(float* out, const float* x, std::int64_t size) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (i < size) {
    out[i] = silu_of(x[i]);
  }
}

/// x·Φ(x). erfc keeps the digits of the left tail, which 1 + erf would cancel.
struct ExactGelu {
  __device__ float operator()(float x) const { return 0.5F * x * erfcf(-x * 0.707106781F); }
};

/// x/2·(1 + tanh(u)) = x / (1 + exp(-2u)).
struct TanhGelu {
  __device__ float operator()(float x) const {
    constexpr float kTwiceRoot = 1.59576912F;  // 2·√(2/π)
    return x / (1.0F + expf(-kTwiceRoot * (x + 0.044715F * x * x * x)));
  }
};

// Moves 8 bytes a value; bound by memory. One value a thread.
template <typename Form>
__global__ void __launch_bounds__(kBlock)
    gelu_kernel(float* out, const float* x, std::int64_t size, Form form) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (i < size) {
    out[i] = form(x[i]);
  }
}

template <typename Form>
void launch_gelu(OpContext& ctx, TensorView out, ConstTensorView x, const Form& form) {
  const std::int64_t size = x.num_elements();
  launch("gelu", ctx, out, dim3(grid_x(div_up(size, kBlock))), dim3(kBlock), gelu_kernel<Form>,
         out.f32(), x.f32(), size, form);
}

}  // namespace

void gelu(OpContext& ctx, TensorView out, ConstTensorView x, GeluForm form) {
  if (form == GeluForm::kExact) {
    launch_gelu(ctx, out, x, ExactGelu());
  } else {
    launch_gelu(ctx, out, x, TanhGelu());
  }
}

void silu_mul(OpContext& ctx, TensorView out, ConstTensorView gate, ConstTensorView value) {
  launch("silu_mul", ctx, out, row_grid(out.dim(0), out.dim(1)), dim3(kBlock), silu_mul_kernel,
         out.f32(), out.stride(0), gate.f32(), gate.stride(0), value.f32(), value.stride(0),
         out.dim(1));
}

void silu(OpContext& ctx, TensorView out, ConstTensorView x) {
  const std::int64_t size = x.num_elements();
  launch("silu", ctx, out, dim3(grid_x(div_up(size, kBlock))), dim3(kBlock), silu_kernel, out.f32(),
         x.f32(), size);
}

}  // namespace miniacc::ops::cuda
