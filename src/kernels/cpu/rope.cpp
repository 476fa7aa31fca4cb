#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace miniacc::ops::cpu {

void apply_rope(OpContext& ctx, TensorView x, ConstTensorView cos, ConstTensorView sin) {
  const std::int64_t n = cos.dim(1);
  float* data = x.f32();
  const float* all_cosines = cos.f32();
  const float* all_sines = sin.f32();
  parallel_for(ctx, x.dim(0), 4 * x.dim(1) * n, [&](std::int64_t row) {
    const float* cosines = all_cosines + row * n;
    const float* sines = all_sines + row * n;
    for (std::int64_t head = 0; head < x.dim(1); ++head) {
      float* first = data + row * x.stride(0) + head * x.stride(1);
      float* second = first + n;
      for (std::int64_t i = 0; i < n; ++i) {
        const float a = first[i];
        const float b = second[i];
        first[i] = a * cosines[i] - b * sines[i];
        second[i] = b * cosines[i] + a * sines[i];
      }
    }
  });
}

}  // namespace miniacc::ops::cpu
