#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace miniacc::ops::cpu {

void apply_rope(OpContext& ctx, TensorView x, ConstTensorView cos, ConstTensorView sin) {
  const std::int64_t n = cos.dim(1);
  parallel_for(ctx, x.dim(0), [&](std::int64_t row) {
    const float* cosines = cos.f32() + row * n;
    const float* sines = sin.f32() + row * n;
    for (std::int64_t head = 0; head < x.dim(1); ++head) {
      float* values = x.f32() + row * x.stride(0) + head * x.stride(1);
      for (std::int64_t i = 0; i < n; ++i) {
        const float a = values[i];
        const float b = values[i + n];
        values[i] = a * cosines[i] - b * sines[i];
        values[i + n] = b * cosines[i] + a * sines[i];
      }
    }
  });
}

}  // namespace miniacc::ops::cpu
