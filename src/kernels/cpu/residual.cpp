#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace miniacc::ops::cpu {

void add(OpContext& ctx, TensorView h, ConstTensorView x) {
  if (h.shape.rank() == 0 || h.num_elements() == 0) {
    return;
  }
  const std::int64_t rows = h.dim(0);
  const std::int64_t size = h.num_elements() / rows;
  parallel_for(ctx, rows, [&](std::int64_t row) {
    float* target = h.f32() + row * size;
    const float* source = x.f32() + row * size;
    for (std::int64_t i = 0; i < size; ++i) {
      target[i] += source[i];
    }
  });
}

void gated_add(OpContext& ctx, TensorView h, ConstTensorView x, ConstTensorView gate,
               ConstTensorView index) {
  const std::int64_t size = h.dim(1);
  const auto* rows = index.empty() ? nullptr : index.as<std::int32_t>();
  parallel_for(ctx, h.dim(0), [&](std::int64_t row) {
    float* target = h.f32() + row * size;
    const float* source = x.f32() + row * size;
    const float* factor = gate.f32() + (rows == nullptr ? 0 : rows[row] * gate.stride(0));
    for (std::int64_t i = 0; i < size; ++i) {
      target[i] += factor[i] * source[i];
    }
  });
}

}  // namespace miniacc::ops::cpu
