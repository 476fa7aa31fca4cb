#include <cmath>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace miniacc::ops::cpu {
namespace {
float silu_value(float x) { return x / (1.0F + std::exp(-x)); }
}  // namespace

void silu_mul(OpContext& ctx, TensorView out, ConstTensorView gate, ConstTensorView value) {
  const std::int64_t size = out.dim(1);
  parallel_for(ctx, out.dim(0), [&](std::int64_t row) {
    const float* gates = gate.f32() + row * gate.stride(0);
    const float* values = value.f32() + row * value.stride(0);
    float* target = out.f32() + row * size;
    for (std::int64_t i = 0; i < size; ++i) {
      target[i] = silu_value(gates[i]) * values[i];
    }
  });
}

void silu(OpContext& ctx, TensorView out, ConstTensorView x) {
  parallel_for(ctx, x.num_elements(),
               [&](std::int64_t i) { out.f32()[i] = silu_value(x.f32()[i]); });
}

}  // namespace miniacc::ops::cpu
