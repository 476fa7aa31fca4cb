#include <algorithm>
#include <cmath>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace miniacc::ops::cpu {

void quantize_rows(OpContext& ctx, TensorView out, TensorView scale, ConstTensorView x) {
  const std::int64_t k = x.dim(1);
  parallel_for(ctx, x.dim(0), [&](std::int64_t row) {
    const float* source = x.f32() + row * k;
    float peak = 0.0F;
    for (std::int64_t c = 0; c < k; ++c) {
      peak = std::max(peak, std::fabs(source[c]));
    }
    const float step = peak > 0.0F ? peak / 127.0F : 1.0F;
    scale.f32()[row] = step;
    auto* target = out.as<std::int8_t>() + row * k;
    for (std::int64_t c = 0; c < k; ++c) {
      // A subnormal step can make the quotient leave the range by rounding.
      target[c] =
          static_cast<std::int8_t>(std::clamp(std::nearbyint(source[c] / step), -127.0F, 127.0F));
    }
  });
}

void rotate_rows(OpContext& ctx, TensorView x, std::int64_t group) {
  const std::int64_t k = x.dim(1);
  const float norm = 1.0F / std::sqrt(static_cast<float>(group));
  parallel_for(ctx, x.dim(0), [&](std::int64_t row) {
    for (std::int64_t first = 0; first < k; first += group) {
      float* values = x.f32() + row * k + first;
      // A Kronecker power is applied one 4×4 factor at a time, like a radix-4 butterfly.
      for (std::int64_t stride = 1; stride < group; stride *= 4) {
        for (std::int64_t base = 0; base < group; base += 4 * stride) {
          for (std::int64_t i = base; i < base + stride; ++i) {
            const float a = values[i];
            const float b = values[i + stride];
            const float c = values[i + 2 * stride];
            const float d = values[i + 3 * stride];
            values[i] = a + b + c - d;
            values[i + stride] = a + b - c + d;
            values[i + 2 * stride] = a - b + c + d;
            values[i + 3 * stride] = -a + b + c + d;
          }
        }
      }
      for (std::int64_t i = 0; i < group; ++i) {
        values[i] *= norm;
      }
    }
  });
}

}  // namespace miniacc::ops::cpu
