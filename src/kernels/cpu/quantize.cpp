#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace miniacc::ops::cpu {
namespace {

template <int kLanes>
MINIACC_ISA_BODY void quantize_row_body(std::int8_t* out, const float* x, std::int64_t size,
                                        float step) {
#pragma omp simd
  for (std::int64_t i = 0; i < size; ++i) {
    // A subnormal step can make the quotient leave the range by rounding.
    float value = x[i] / step;
    value = value < -127.0F ? -127.0F : value;
    value = value > 127.0F ? 127.0F : value;
    // Adding 1.5·2^23 rounds half to even and leaves the integer in the low mantissa bits.
    out[i] = static_cast<std::int8_t>(std::bit_cast<std::int32_t>(value + 12582912.0F));
  }
}

MINIACC_ISA_VARIANTS(void, quantize_row,
                     (std::int8_t * out, const float* x, std::int64_t size, float step),
                     (out, x, size, step))

}  // namespace

void quantize_rows(OpContext& ctx, TensorView out, TensorView scale, ConstTensorView x) {
  const std::int64_t k = x.dim(1);
  const float* input = x.f32();
  float* scales = scale.f32();
  auto* output = out.as<std::int8_t>();
  parallel_for(ctx, x.dim(0), 8 * k, [&](std::int64_t row) {
    const float* source = input + row * k;
    std::int8_t* target = output + row * k;
    const float peak = max_magnitude(source, k);
    if (!std::isfinite(peak)) {
      scales[row] = std::numeric_limits<float>::quiet_NaN();
      std::fill(target, target + k, std::int8_t{0});
      return;
    }
    // peak / 127 of a subnormal peak can round to 0.
    const float step = std::max(peak / 127.0F, std::numeric_limits<float>::denorm_min());
    scales[row] = peak > 0.0F ? step : 1.0F;
    quantize_row(target, source, k, scales[row]);
  });
}

void rotate_rows(OpContext& ctx, TensorView x, std::int64_t group) {
  const std::int64_t k = x.dim(1);
  const float norm = 1.0F / std::sqrt(static_cast<float>(group));
  float* data = x.f32();
  parallel_for(ctx, x.dim(0), 8 * k, [&](std::int64_t row) {
    for (std::int64_t first = 0; first < k; first += group) {
      float* values = data + row * k + first;
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
