#include <algorithm>
#include <cmath>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace miniacc::ops::cpu {
namespace {

constexpr std::int64_t kCost = 12;        // against one multiplication
constexpr std::int64_t kBlock = 1 << 13;  // elements a thread takes at once

void gelu_exact_row(float* out, const float* x, std::int64_t size) {
  constexpr float kInverseSqrt2 = 0.707106781F;
  for (std::int64_t i = 0; i < size; ++i) {
    // erfc keeps the digits of the left tail, which 1 + erf would cancel.
    out[i] = 0.5F * x[i] * std::erfc(-x[i] * kInverseSqrt2);
  }
}

}  // namespace

void gelu(OpContext& ctx, TensorView out, ConstTensorView x, GeluForm form) {
  const std::int64_t size = x.num_elements();
  const float* source = x.f32();
  float* target = out.f32();
  parallel_for(ctx, (size + kBlock - 1) / kBlock, kCost * kBlock, [&](std::int64_t block) {
    const std::int64_t first = block * kBlock;
    const std::int64_t count = std::min(kBlock, size - first);
    if (form == GeluForm::kTanh) {
      gelu_tanh_row(target + first, source + first, count);
    } else {
      gelu_exact_row(target + first, source + first, count);
    }
  });
}

}  // namespace miniacc::ops::cpu
