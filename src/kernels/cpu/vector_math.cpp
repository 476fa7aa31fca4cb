#include "kernels/cpu/vector_math.h"

#include <algorithm>
#include <limits>

namespace miniacc::ops::cpu {
namespace {

template <int kLanes>
MINIACC_ISA_BODY float softmax_numerator_impl_body(float* row, std::int64_t visible, float scale) {
  float peak = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : peak)
  for (std::int64_t i = 0; i < visible; ++i) {
    peak = row[i] > peak ? row[i] : peak;
  }
  // Short float sums, then double: exact enough for any number of keys at the speed of float.
  constexpr std::int64_t kChunk = 1024;
  double sum = 0.0;
  for (std::int64_t first = 0; first < visible; first += kChunk) {
    const std::int64_t last = std::min(visible, first + kChunk);
    float part = 0.0F;
#pragma omp simd reduction(+ : part)
    for (std::int64_t i = first; i < last; ++i) {
      const float value = vector_exp((row[i] - peak) * scale);
      row[i] = value;
      part += value;
    }
    sum += static_cast<double>(part);
  }
  return static_cast<float>(1.0 / sum);
}

template <int kLanes>
MINIACC_ISA_BODY void silu_mul_impl_body(float* out, const float* gate, const float* value,
                                         std::int64_t size) {
#pragma omp simd
  for (std::int64_t i = 0; i < size; ++i) {
    out[i] = gate[i] / (1.0F + vector_exp(-gate[i])) * value[i];
  }
}

template <int kLanes>
MINIACC_ISA_BODY void silu_impl_body(float* out, const float* x, std::int64_t size) {
#pragma omp simd
  for (std::int64_t i = 0; i < size; ++i) {
    out[i] = x[i] / (1.0F + vector_exp(-x[i]));
  }
}

template <int kLanes>
MINIACC_ISA_BODY void gelu_tanh_impl_body(float* out, const float* x, std::int64_t size) {
  constexpr float kTwiceRoot = 1.59576912F;  // 2·√(2/π), because 1 + tanh(u) = 2 / (1 + exp(-2u))
#pragma omp simd
  for (std::int64_t i = 0; i < size; ++i) {
    const float u = kTwiceRoot * (x[i] + 0.044715F * x[i] * x[i] * x[i]);
    out[i] = x[i] / (1.0F + vector_exp(-u));
  }
}

template <int kLanes>
MINIACC_ISA_BODY double sum_of_squares_impl_body(const float* x, std::int64_t size) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < size; ++i) {
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return sum;
}

template <int kLanes>
MINIACC_ISA_BODY float max_magnitude_impl_body(const float* x, std::int64_t size) {
  // Magnitudes order like their bits as integers, and NaN lies above infinity.
  std::int32_t peak = 0;
#pragma omp simd reduction(max : peak)
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int32_t bits = std::bit_cast<std::int32_t>(x[i]) & 0x7FFFFFFF;
    peak = bits > peak ? bits : peak;
  }
  return std::bit_cast<float>(peak);
}

MINIACC_ISA_VARIANTS(float, softmax_numerator_impl, (float* row, std::int64_t visible, float scale),
                     (row, visible, scale))
MINIACC_ISA_VARIANTS(void, silu_mul_impl,
                     (float* out, const float* gate, const float* value, std::int64_t size),
                     (out, gate, value, size))
MINIACC_ISA_VARIANTS(void, silu_impl, (float* out, const float* x, std::int64_t size),
                     (out, x, size))
MINIACC_ISA_VARIANTS(void, gelu_tanh_impl, (float* out, const float* x, std::int64_t size),
                     (out, x, size))
MINIACC_ISA_VARIANTS(double, sum_of_squares_impl, (const float* x, std::int64_t size), (x, size))
MINIACC_ISA_VARIANTS(float, max_magnitude_impl, (const float* x, std::int64_t size), (x, size))

}  // namespace

float softmax_numerator(float* row, std::int64_t visible, std::int64_t size, float scale) {
  std::fill(row + visible, row + size, 0.0F);
  return softmax_numerator_impl(row, visible, scale);
}
void silu_mul_row(float* out, const float* gate, const float* value, std::int64_t size) {
  silu_mul_impl(out, gate, value, size);
}
void silu_row(float* out, const float* x, std::int64_t size) { silu_impl(out, x, size); }
void gelu_tanh_row(float* out, const float* x, std::int64_t size) { gelu_tanh_impl(out, x, size); }
double sum_of_squares(const float* x, std::int64_t size) { return sum_of_squares_impl(x, size); }
float max_magnitude(const float* x, std::int64_t size) { return max_magnitude_impl(x, size); }

}  // namespace miniacc::ops::cpu
