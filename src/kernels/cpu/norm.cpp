#include <cmath>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace miniacc::ops::cpu {
namespace {

constexpr std::int64_t kCost = 4;  // passes and conversions against one multiplication

float inverse_rms(const float* x, std::int64_t size, float eps) {
  const double mean = sum_of_squares(x, size) / static_cast<double>(size);
  return static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(eps)));
}

}  // namespace

void rms_norm(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
              float eps) {
  const bool per_head = x.shape.rank() == 3;
  const std::int64_t groups = per_head ? x.dim(1) : 1;
  const std::int64_t size = x.shape.back();
  const float* input = x.f32();
  float* output = out.f32();
  const float* scale = weight.empty() ? nullptr : weight.f32();
  parallel_for(ctx, x.dim(0), kCost * groups * size, [&](std::int64_t row) {
    for (std::int64_t group = 0; group < groups; ++group) {
      const float* source = input + row * x.stride(0) + (per_head ? group * x.stride(1) : 0);
      float* target = output + row * out.stride(0) + (per_head ? group * out.stride(1) : 0);
      const float factor = inverse_rms(source, size, eps);
      if (scale == nullptr) {
        for (std::int64_t i = 0; i < size; ++i) {
          target[i] = source[i] * factor;
        }
      } else {
        for (std::int64_t i = 0; i < size; ++i) {
          target[i] = source[i] * factor * scale[i];
        }
      }
    }
  });
}

void modulated_rms_norm(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                        ConstTensorView shift, ConstTensorView scale, ConstTensorView index,
                        float eps) {
  const std::int64_t size = x.dim(1);
  require_rows_in_table(index, shift.dim(0));
  const auto* rows = index.as<std::int32_t>();
  const float* input = x.f32();
  const float* weights = weight.f32();
  const float* shifts = shift.f32();
  const float* scales = scale.f32();
  float* output = out.f32();
  parallel_for(ctx, x.dim(0), kCost * size, [&](std::int64_t row) {
    const float* source = input + row * size;
    float* target = output + row * size;
    const float* row_shift = shifts + rows[row] * shift.stride(0);
    const float* row_scale = scales + rows[row] * scale.stride(0);
    const float factor = inverse_rms(source, size, eps);
    for (std::int64_t i = 0; i < size; ++i) {
      target[i] = source[i] * factor * weights[i] * (1.0F + row_scale[i]) + row_shift[i];
    }
  });
}

void layer_norm(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                ConstTensorView bias, float eps) {
  const std::int64_t size = x.dim(1);
  const float* input = x.f32();
  const float* weights = weight.f32();
  const float* biases = bias.f32();
  float* output = out.f32();
  parallel_for(ctx, x.dim(0), kCost * size, [&](std::int64_t row) {
    const float* source = input + row * size;
    float* target = output + row * size;
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < size; ++i) {
      sum += static_cast<double>(source[i]);
    }
    const double mean = sum / static_cast<double>(size);
    double squares = 0.0;
#pragma omp simd reduction(+ : squares)
    for (std::int64_t i = 0; i < size; ++i) {
      const double centred = static_cast<double>(source[i]) - mean;
      squares += centred * centred;
    }
    const double factor =
        1.0 / std::sqrt(squares / static_cast<double>(size) + static_cast<double>(eps));
    // Centred in double: a row far from zero keeps its digits.
    for (std::int64_t i = 0; i < size; ++i) {
      const auto normalized = static_cast<float>((static_cast<double>(source[i]) - mean) * factor);
      target[i] = normalized * weights[i] + biases[i];
    }
  });
}

}  // namespace miniacc::ops::cpu
