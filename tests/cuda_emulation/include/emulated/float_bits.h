#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

/// Conversions between float and the bits of narrower formats, round to nearest even, written from
/// IEEE 754 and the OCP 8-bit format; nothing of src/ is used, so that the kernels' results are
/// checked against a second implementation.
namespace cuda_emulation {

inline float half_value(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  double value = 0.0;
  if (exponent == 31) {
    value = fraction == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(fraction, -24);
  } else {
    value = std::ldexp(1024 + fraction, exponent - 25);
  }
  return static_cast<float>((bits & 0x8000) != 0 ? -value : value);
}

/// Rounds to `fraction_bits` bits behind the leading one with exponents from `least_exponent` up;
/// the caller handles overflow, infinity and NaN.
inline double round_to_format(double value, int fraction_bits, int least_exponent) {
  int exponent = 0;
  std::frexp(value, &exponent);  // |value| in [2^(exponent-1), 2^exponent)
  const int unit = std::max(exponent - 1, least_exponent) - fraction_bits;
  return std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
}

inline std::uint16_t half_bits(float value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) {
    return 0x7FFF;
  }
  const double rounded = std::fabs(round_to_format(static_cast<double>(value), 10, -14));
  if (std::isinf(value) || rounded > 65504.0) {
    return sign | 0x7C00;
  }
  if (rounded < std::ldexp(1.0, -14)) {
    return sign | static_cast<std::uint16_t>(std::ldexp(rounded, 24));
  }
  int exponent = 0;
  std::frexp(rounded, &exponent);
  const auto fraction = static_cast<int>(std::ldexp(rounded, 11 - exponent)) - 1024;
  return sign | static_cast<std::uint16_t>(((exponent - 1 + 15) << 10) | fraction);
}

inline float bf16_value(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t bf16_bits(float value) {
  if (std::isnan(value)) {
    return 0x7FFF;
  }
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

inline float e4m3_value(std::uint8_t bits) {
  const int exponent = (bits >> 3) & 15;
  const int fraction = bits & 7;
  if (exponent == 15 && fraction == 7) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  const double value =
      exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return static_cast<float>((bits & 0x80) != 0 ? -value : value);
}

/// Too large values and the infinities become 448 (satfinite), NaN stays NaN.
inline std::uint8_t e4m3_bits(float value) {
  const std::uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) {
    return 0x7F;
  }
  const double rounded =
      std::isinf(value) ? 448.0 : std::fabs(round_to_format(static_cast<double>(value), 3, -6));
  if (rounded >= 448.0) {
    return sign | 0x7E;
  }
  if (rounded < std::ldexp(1.0, -6)) {
    return sign | static_cast<std::uint8_t>(std::ldexp(rounded, 9));
  }
  int exponent = 0;
  std::frexp(rounded, &exponent);
  const auto fraction = static_cast<int>(std::ldexp(rounded, 4 - exponent)) - 8;
  return sign | static_cast<std::uint8_t>(((exponent - 1 + 7) << 3) | fraction);
}

}  // namespace cuda_emulation
