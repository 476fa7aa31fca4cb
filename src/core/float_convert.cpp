#include "core/float_convert.h"

#include <limits>

namespace miniacc {
namespace {

/// Exact value of sign, exponent field and mantissa field of a small IEEE-like format.
float small_float(bool negative, int exponent, int mantissa, int mantissa_bits, int bias) {
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits)
                              : std::ldexp(static_cast<float>(mantissa + (1 << mantissa_bits)),
                                           exponent - bias - mantissa_bits);
  return negative ? -magnitude : magnitude;
}

}  // namespace

float f16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (static_cast<std::uint32_t>(bits) & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1FU;
  const std::uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0x1FU) {
    return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  }
  if (exponent == 0) {
    return small_float(sign != 0, 0, static_cast<int>(mantissa), 10, 15);
  }
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
}

std::uint16_t float_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return static_cast<std::uint16_t>(sign | 0x7E00U);
  }
  if (magnitude >= 0x477FF000U) {  // 65520 and above round to infinity
    return static_cast<std::uint16_t>(sign | 0x7C00U);
  }
  if (magnitude < 0x38800000U) {  // below 2^-14: subnormal, in units of 2^-24
    const float scaled = std::bit_cast<float>(magnitude) * 16777216.0F;
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::nearbyint(scaled)));
  }
  const std::uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

float f8e4m3_to_float(std::uint8_t bits) {
  if ((bits & 0x7FU) == 0x7FU) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  return small_float((bits & 0x80U) != 0, (bits >> 3) & 0xF, bits & 0x7, 3, 7);
}

float f8e5m2_to_float(std::uint8_t bits) {
  return f16_to_float(static_cast<std::uint16_t>(bits << 8));
}

std::uint8_t float_to_f8e4m3(float value) {
  if (std::isnan(value)) {
    return 0x7F;
  }
  const auto sign = static_cast<std::uint8_t>(std::signbit(value) ? 0x80 : 0);
  const float magnitude = std::fabs(value);
  if (magnitude >= 448.0F) {
    return sign | 0x7E;
  }
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = m * 2^exponent, m in [0.5, 1)
  // Spacing of the representable values around magnitude: 2^-9 in the subnormal range.
  const int step = magnitude < std::ldexp(1.0F, -6) ? -9 : exponent - 4;
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, -step)));
  if (step == -9) {
    return static_cast<std::uint8_t>(sign |
                                     units);  // 8 units carry into the first normal: same bits
  }
  const int field =
      (exponent - 1 + 7) * 8 + (units - 8);  // a carry to 16 units raises the exponent
  return static_cast<std::uint8_t>(sign | (field > 0x7E ? 0x7E : field));
}

}  // namespace miniacc
