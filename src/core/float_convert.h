#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace miniacc {

/// Conversions between float and the 16- and 8-bit float formats, by value of the stored bits.
/// To-float is exact; from-float rounds to nearest, ties to even; NaN stays NaN.
inline float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
    return static_cast<std::uint16_t>((bits >> 16) | 0x40U);  // keep it a NaN after truncation
  }
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

/// float rounded to the nearest bf16 and back.
inline float round_to_bf16(float value) { return bf16_to_float(float_to_bf16(value)); }

float f16_to_float(std::uint16_t bits);
std::uint16_t float_to_f16(float value);

/// 8-bit floats as in "FP8 Formats for Deep Learning" (Micikevicius et al. 2022): e4m3 has no
/// infinity (0x7F and 0xFF are NaN), e5m2 follows IEEE.
float f8e4m3_to_float(std::uint8_t bits);
float f8e5m2_to_float(std::uint8_t bits);
/// Rounds to nearest even and saturates at 448, as checkpoints quantised with a scale expect.
std::uint8_t float_to_f8e4m3(float value);

}  // namespace miniacc
