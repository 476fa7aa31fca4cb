#include <algorithm>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace miniacc::ops::cpu {
namespace {
constexpr std::int64_t kCost = 8;         // one exponential against one multiplication
constexpr std::int64_t kBlock = 1 << 13;  // elements a thread takes at once
}  // namespace

void silu_mul(OpContext& ctx, TensorView out, ConstTensorView gate, ConstTensorView value) {
  const std::int64_t size = out.dim(1);
  const float* gates = gate.f32();
  const float* values = value.f32();
  float* target = out.f32();
  parallel_for(ctx, out.dim(0), kCost * size, [&](std::int64_t row) {
    silu_mul_row(target + row * out.stride(0), gates + row * gate.stride(0),
                 values + row * value.stride(0), size);
  });
}

void silu(OpContext& ctx, TensorView out, ConstTensorView x) {
  const std::int64_t size = x.num_elements();
  const float* source = x.f32();
  float* target = out.f32();
  parallel_for(ctx, (size + kBlock - 1) / kBlock, kCost * kBlock, [&](std::int64_t block) {
    const std::int64_t first = block * kBlock;
    silu_row(target + first, source + first, std::min(kBlock, size - first));
  });
}

}  // namespace miniacc::ops::cpu
