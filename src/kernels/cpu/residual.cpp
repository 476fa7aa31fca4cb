#include <algorithm>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace miniacc::ops::cpu {

void add(OpContext& ctx, TensorView h, ConstTensorView x) {
  constexpr std::int64_t kBlock = 1 << 14;
  const std::int64_t size = h.num_elements();
  float* target = h.f32();
  const float* source = x.f32();
  parallel_for(ctx, (size + kBlock - 1) / kBlock, kBlock, [&](std::int64_t block) {
    const std::int64_t last = std::min(size, (block + 1) * kBlock);
    for (std::int64_t i = block * kBlock; i < last; ++i) {
      target[i] += source[i];
    }
  });
}

void gated_add(OpContext& ctx, TensorView h, ConstTensorView x, ConstTensorView gate,
               ConstTensorView index) {
  const std::int64_t size = h.dim(1);
  const auto* rows = index.empty() ? nullptr : index.as<std::int32_t>();
  float* output = h.f32();
  const float* input = x.f32();
  const float* gates = gate.f32();
  parallel_for(ctx, h.dim(0), size, [&](std::int64_t row) {
    float* target = output + row * size;
    const float* source = input + row * size;
    const float* factor = gates + (rows == nullptr ? 0 : rows[row] * gate.stride(0));
    for (std::int64_t i = 0; i < size; ++i) {
      target[i] += factor[i] * source[i];
    }
  });
}

}  // namespace miniacc::ops::cpu
