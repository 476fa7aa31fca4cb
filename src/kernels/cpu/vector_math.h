#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cpu/isa.h"

/// Elementary functions that the compiler can vectorise, and the row loops made of them. Errors
/// are measured in tests/kernels/vector_math_test.cpp and bounded there.
namespace miniacc::ops::cpu {

/// e^x for every float: 0 below about -104, infinity above about 88.7, NaN for NaN. Error below
/// 2 units in the last place where the result is normal. Splits x = n·ln 2 + r, |r| <= ln 2 / 2;
/// degree-6 polynomial in r, a Chebyshev fit of (e^r - 1 - r) / r².
MINIACC_ISA_BODY float vector_exp(float x) {
  x = x < -105.0F ? -105.0F : x;  // written so that NaN passes
  x = x > 89.0F ? 89.0F : x;
  // Adding 1.5·2^23 rounds to an integer and leaves it in the low mantissa bits.
  const float shifted = x * 1.44269504F + 12582912.0F;
  const float n = shifted - 12582912.0F;
  const float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;  // ln 2 in two parts
  float p = 0.001392655043F;
  p = p * r + 0.008363472722F;
  p = p * r + 0.0416665524F;
  p = p * r + 0.1666657522F;
  p = p * r + 0.5F;
  p = p * (r * r) + r + 1.0F;
  // 2^n as a product of two powers, each a normal number, so that subnormal results round once.
  const std::int32_t exponent =
      std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(12582912.0F);
  const std::int32_t half = exponent >> 1;
  const auto power = [](std::int32_t e) __attribute__((always_inline)) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23);
  };
  return p * power(half) * power(exponent - half);
}

/// Arguments of vector_sin_squared up to this size keep its error bound: n below 8192 makes the
/// products n·π₁ and n·π₂ exact.
inline constexpr float kSinSquaredLimit = 25000.0F;

/// sin(x)², |x| <= kSinSquaredLimit; absolute error below 3e-7. The square has period π, so
/// x = n·π + r with |r| <= π/2 suffices; odd polynomial of degree 11, a Chebyshev fit of sin(r)/r.
MINIACC_ISA_BODY float vector_sin_squared(float x) {
  const float shifted = x * 0.318309886F + 12582912.0F;
  const float n = shifted - 12582912.0F;
  // π in three parts, four times those of Cephes sinf.
  const float r = ((x - n * 3.140625F) - n * 9.67502593994140625e-4F) - n * 1.509957990978376e-7F;
  const float u = r * r;
  float p = -2.387784618e-08F;
  p = p * u + 2.752463514e-06F;
  p = p * u - 0.0001984084893F;
  p = p * u + 0.008333330879F;
  p = p * u - 0.1666666661F;
  const float sine = r + r * (u * p);
  return sine * sine;
}

/// row[i] ← exp(scale · (row[i] - max)) for i < visible, 0 from there to size; returns 1 / sum.
/// A NaN among the visible values makes the result NaN.
float softmax_numerator(float* row, std::int64_t visible, std::int64_t size, float scale);
/// out[i] = gate[i] / (1 + exp(-gate[i])) · value[i].
void silu_mul_row(float* out, const float* gate, const float* value, std::int64_t size);
/// out[i] = x[i] / (1 + exp(-x[i])); out may be x.
void silu_row(float* out, const float* x, std::int64_t size);
/// out[i] = x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))), x = x[i]; out may be x.
void gelu_tanh_row(float* out, const float* x, std::int64_t size);
/// Σ x[i]², in double.
double sum_of_squares(const float* x, std::int64_t size);
/// max |x[i]|; infinity or NaN in the row gives infinity or NaN.
float max_magnitude(const float* x, std::int64_t size);

}  // namespace miniacc::ops::cpu
