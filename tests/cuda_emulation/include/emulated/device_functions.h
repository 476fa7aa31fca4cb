#pragma once

#include <math.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <source_location>
#include <type_traits>

#include "block.h"

/// Device functions of CUDA that MiniAcc's kernels use, with CUDA's names.

inline constexpr int warpSize = 32;

// ---- barriers and warps ----

inline void __syncthreads(const std::source_location& where = std::source_location::current()) {
  ::cuda_emulation::wait_for_block(::cuda_emulation::Vote::kNone, false, where);
}
inline int __syncthreads_and(int predicate,
                             const std::source_location& where = std::source_location::current()) {
  return ::cuda_emulation::wait_for_block(::cuda_emulation::Vote::kAnd, predicate != 0, where);
}
inline int __syncthreads_or(int predicate,
                            const std::source_location& where = std::source_location::current()) {
  return ::cuda_emulation::wait_for_block(::cuda_emulation::Vote::kOr, predicate != 0, where);
}
inline int __syncthreads_count(
    int predicate, const std::source_location& where = std::source_location::current()) {
  return ::cuda_emulation::wait_for_block(::cuda_emulation::Vote::kCount, predicate != 0, where);
}

inline void __syncwarp(unsigned mask = 0xFFFFFFFFU,
                       const std::source_location& where = std::source_location::current()) {
  ::cuda_emulation::warp_collective<char>(
      "__syncwarp", mask, char{}, [](const auto&) { return char{}; }, where);
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              const std::source_location& where = std::source_location::current()) {
  return ::cuda_emulation::warp_collective<unsigned>(
      "__ballot_sync", mask, predicate != 0,
      [](const auto& inputs) {
        unsigned votes = 0;
        for (unsigned lane = 0; lane < 32; ++lane) {
          votes |= inputs[lane] != nullptr && *inputs[lane] ? 1U << lane : 0U;
        }
        return votes;
      },
      where);
}
inline int __any_sync(unsigned mask, int predicate,
                      const std::source_location& where = std::source_location::current()) {
  return __ballot_sync(mask, predicate, where) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate,
                      const std::source_location& where = std::source_location::current()) {
  return __ballot_sync(mask, predicate == 0 ? 1 : 0, where) == 0 ? 1 : 0;
}

namespace cuda_emulation {

template <typename T, typename Source>
T shuffle(const char* name, unsigned mask, const T& value, int width, const Source& source,
          const std::source_location& where) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 16);
  if (width < 1 || width > 32 || !std::has_single_bit(static_cast<unsigned>(width))) {
    stop_kernel("a shuffle's width must be a power of two up to 32", where);
  }
  const int lane = static_cast<int>(this_thread->lane);
  const int first = lane / width * width;
  int from = source(lane, first, first + width - 1);
  return warp_collective<T>(
      name, mask, value,
      [from](const auto& inputs) {
        const T* found = inputs[static_cast<unsigned>(from)];
        return found != nullptr ? *found : poison<T>();
      },
      where);
}

}  // namespace cuda_emulation

// The source lane of each is that of the PTX instruction shfl.sync in its four modes.
template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              const std::source_location& where = std::source_location::current()) {
  return ::cuda_emulation::shuffle(
      "__shfl_sync", mask, value, width,
      [&](int, int first, int) { return first + (source & (width - 1)); }, where);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 const std::source_location& where = std::source_location::current()) {
  return ::cuda_emulation::shuffle(
      "__shfl_up_sync", mask, value, width,
      [&](int lane, int first, int) {
        const int from = lane - static_cast<int>(delta);
        return from < first ? lane : from;
      },
      where);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   const std::source_location& where = std::source_location::current()) {
  return ::cuda_emulation::shuffle(
      "__shfl_down_sync", mask, value, width,
      [&](int lane, int, int last) {
        const int from = lane + static_cast<int>(delta);
        return from > last ? lane : from;
      },
      where);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  const std::source_location& where = std::source_location::current()) {
  return ::cuda_emulation::shuffle(
      "__shfl_xor_sync", mask, value, width,
      [&](int lane, int, int last) {
        const int from = lane ^ lane_mask;
        return from > last ? lane : from;
      },
      where);
}

namespace cuda_emulation {
template <typename T, typename Combine>
T reduce(const char* name, unsigned mask, T value, const Combine& combine,
         const std::source_location& where) {
  return warp_collective<T>(
      name, mask, value,
      [&](const auto& inputs) {
        bool first = true;
        T sum{};
        for (unsigned lane = 0; lane < 32; ++lane) {
          if (inputs[lane] != nullptr) {
            sum = first ? *inputs[lane] : combine(sum, *inputs[lane]);
            first = false;
          }
        }
        return sum;
      },
      where);
}
}  // namespace cuda_emulation

#define MINIACC_EMULATED_REDUCE(name, T, expression)                                     \
  inline T name(unsigned mask, T value,                                                  \
                const std::source_location& where = std::source_location::current()) {   \
    return ::cuda_emulation::reduce(                                                     \
        #name, mask, value, [](T a, T b) { return static_cast<T>(expression); }, where); \
  }
MINIACC_EMULATED_REDUCE(__reduce_add_sync, unsigned, a + b)
MINIACC_EMULATED_REDUCE(__reduce_add_sync, int, static_cast<unsigned>(a) + static_cast<unsigned>(b))
MINIACC_EMULATED_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
MINIACC_EMULATED_REDUCE(__reduce_max_sync, int, a > b ? a : b)
MINIACC_EMULATED_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
MINIACC_EMULATED_REDUCE(__reduce_min_sync, int, a < b ? a : b)
MINIACC_EMULATED_REDUCE(__reduce_or_sync, unsigned, a | b)
MINIACC_EMULATED_REDUCE(__reduce_and_sync, unsigned, a& b)
#undef MINIACC_EMULATED_REDUCE

inline void __threadfence() {}
inline void __threadfence_block() {}
[[noreturn]] inline void __trap(
    const std::source_location& where = std::source_location::current()) {
  ::cuda_emulation::stop_kernel("__trap()", where);
}

// ---- atomics: fibers of one thread, so plain reads and writes are atomic ----

template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  const T before = *address;
  *address = before + value;
  return before;
}
template <typename T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>);
  const T before = *address;
  *address = before < value ? value : before;
  return before;
}
template <typename T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>);
  const T before = *address;
  *address = value < before ? value : before;
  return before;
}
template <typename T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  const T before = *address;
  *address = value;
  return before;
}
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  const T before = *address;
  if (before == expected) {
    *address = value;
  }
  return before;
}
template <typename T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  const T before = *address;
  *address = before | value;
  return before;
}

// ---- bits ----

inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline int __float_as_int(float value) { return std::bit_cast<int>(value); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __clz(int bits) { return std::countl_zero(static_cast<unsigned>(bits)); }
inline int __ffs(int bits) {
  return bits == 0 ? 0 : std::countr_zero(static_cast<unsigned>(bits)) + 1;
}
/// Byte i of the result is byte selector[4i+2 : 4i] of the eight bytes {y, x}; with bit 4i+3 set,
/// that byte's sign bit, repeated.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const std::uint64_t bytes = (static_cast<std::uint64_t>(y) << 32) | x;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned pick = selector >> (4 * i);
    auto byte = static_cast<unsigned>(bytes >> (8 * (pick & 7U))) & 0xFFU;
    if ((pick & 8U) != 0) {
      byte = (byte & 0x80U) != 0 ? 0xFFU : 0U;
    }
    result |= byte << (8 * i);
  }
  return result;
}
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) {
    c += static_cast<std::int8_t>(static_cast<unsigned>(a) >> (8 * i)) *
         static_cast<std::int8_t>(static_cast<unsigned>(b) >> (8 * i));
  }
  return c;
}

// ---- arithmetic ----

template <typename T>
T __ldg(const T* address) {
  return *address;
}
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fmaf(a, b, c); }
inline float __frcp_rn(float a) { return 1.0F / a; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline float rsqrtf(float a) { return 1.0F / std::sqrt(a); }
inline double rsqrt(double a) { return 1.0 / std::sqrt(a); }
inline int __float2int_rn(float a) {
  if (std::isnan(a)) {
    return 0;
  }
  const float rounded = std::rintf(a);
  if (rounded >= 2147483648.0F) {
    return std::numeric_limits<int>::max();
  }
  return rounded < -2147483648.0F ? std::numeric_limits<int>::min() : static_cast<int>(rounded);
}
inline float __int2float_rn(int a) { return static_cast<float>(a); }
// The fast forms promise less than these give.
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float a) { return std::exp(a); }
inline float __logf(float a) { return std::log(a); }
inline float __sinf(float a) { return std::sin(a); }
inline float __cosf(float a) { return std::cos(a); }

template <typename T>
requires std::is_arithmetic_v<T> T max(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::fmax(a, b);
  } else {
    return a < b ? b : a;
  }
}
template <typename T>
requires std::is_arithmetic_v<T> T min(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::fmin(a, b);
  } else {
    return b < a ? b : a;
  }
}
