#pragma once

#include "emulated/float_bits.h"

/// The part of CUDA's bfloat16 header that MiniAcc's kernels use.
struct __nv_bfloat16 {
  std::uint16_t bits;
  __nv_bfloat16() = default;
  explicit __nv_bfloat16(float value) : bits(cuda_emulation::bf16_bits(value)) {}
  explicit operator float() const { return cuda_emulation::bf16_value(bits); }
};
struct __nv_bfloat162 {
  __nv_bfloat16 x;
  __nv_bfloat16 y;
} __attribute__((aligned(4)));

inline __nv_bfloat16 __float2bfloat16(float value) { return __nv_bfloat16(value); }
inline __nv_bfloat16 __float2bfloat16_rn(float value) { return __nv_bfloat16(value); }
inline float __bfloat162float(__nv_bfloat16 value) { return static_cast<float>(value); }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  __nv_bfloat16 value;
  value.bits = bits;
  return value;
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
inline float __low2float(__nv_bfloat162 value) { return static_cast<float>(value.x); }
inline float __high2float(__nv_bfloat162 value) { return static_cast<float>(value.y); }
