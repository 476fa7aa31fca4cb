#pragma once

#include "emulated/float_bits.h"

/// The part of CUDA's half precision header that MiniAcc's kernels use.
struct __half {
  std::uint16_t bits;
  __half() = default;
  explicit __half(float value) : bits(cuda_emulation::half_bits(value)) {}
  explicit operator float() const { return cuda_emulation::half_value(bits); }
};
using half = __half;
struct __half2 {
  __half x;
  __half y;
} __attribute__((aligned(4)));
using half2 = __half2;

inline __half __float2half(float value) { return __half(value); }
inline __half __float2half_rn(float value) { return __half(value); }
inline float __half2float(__half value) { return static_cast<float>(value); }
inline __half __ushort_as_half(unsigned short bits) {
  __half value;
  value.bits = bits;
  return value;
}
inline unsigned short __half_as_ushort(__half value) { return value.bits; }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
inline float __low2float(__half2 value) { return static_cast<float>(value.x); }
inline float __high2float(__half2 value) { return static_cast<float>(value.y); }
