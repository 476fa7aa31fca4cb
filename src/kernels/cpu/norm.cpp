#include <cmath>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace miniacc::ops::cpu {
namespace {

// Sums run in double: one rounding at the end makes the result independent of vector width.
float inverse_rms(const float* x, std::int64_t size, float eps) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < size; ++i) {
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return static_cast<float>(1.0 /
                            std::sqrt(sum / static_cast<double>(size) + static_cast<double>(eps)));
}

}  // namespace

void rms_norm(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
              float eps) {
  const bool per_head = x.shape.rank() == 3;
  const std::int64_t groups = per_head ? x.dim(1) : 1;
  const std::int64_t size = x.shape.back();
  const float* scale = weight.empty() ? nullptr : weight.f32();
  parallel_for(ctx, x.dim(0), [&](std::int64_t row) {
    for (std::int64_t group = 0; group < groups; ++group) {
      const float* source = x.f32() + row * x.stride(0) + (per_head ? group * x.stride(1) : 0);
      float* target = out.f32() + row * out.stride(0) + (per_head ? group * out.stride(1) : 0);
      const float factor = inverse_rms(source, size, eps);
      for (std::int64_t i = 0; i < size; ++i) {
        const float normalized = source[i] * factor;
        target[i] = scale == nullptr ? normalized : normalized * scale[i];
      }
    }
  });
}

void modulated_rms_norm(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                        ConstTensorView shift, ConstTensorView scale, ConstTensorView index,
                        float eps) {
  const std::int64_t size = x.dim(1);
  const auto* rows = index.as<std::int32_t>();
  parallel_for(ctx, x.dim(0), [&](std::int64_t row) {
    const float* source = x.f32() + row * size;
    float* target = out.f32() + row * size;
    const float* row_shift = shift.f32() + rows[row] * shift.stride(0);
    const float* row_scale = scale.f32() + rows[row] * scale.stride(0);
    const float factor = inverse_rms(source, size, eps);
    for (std::int64_t i = 0; i < size; ++i) {
      target[i] = source[i] * factor * weight.f32()[i] * (1.0F + row_scale[i]) + row_shift[i];
    }
  });
}

void layer_norm(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                ConstTensorView bias, float eps) {
  const std::int64_t size = x.dim(1);
  parallel_for(ctx, x.dim(0), [&](std::int64_t row) {
    const float* source = x.f32() + row * size;
    float* target = out.f32() + row * size;
    double sum = 0.0;
    for (std::int64_t i = 0; i < size; ++i) {
      sum += static_cast<double>(source[i]);
    }
    const double mean = sum / static_cast<double>(size);
    double squares = 0.0;
    for (std::int64_t i = 0; i < size; ++i) {
      const double centred = static_cast<double>(source[i]) - mean;
      squares += centred * centred;
    }
    const auto factor = static_cast<float>(
        1.0 / std::sqrt(squares / static_cast<double>(size) + static_cast<double>(eps)));
    for (std::int64_t i = 0; i < size; ++i) {
      target[i] = (source[i] - static_cast<float>(mean)) * factor * weight.f32()[i] + bias.f32()[i];
    }
  });
}

}  // namespace miniacc::ops::cpu
