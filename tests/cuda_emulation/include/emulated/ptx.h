#pragma once

#include "../cuda_runtime.h"

/// Bodies of src/kernels/cuda/ptx.cuh for the emulation. Sums of an mma are taken in double, one
/// rounding at the end: a card's are a little less exact, in a way that NVIDIA does not document.
namespace cuda_emulation {

void mma_16bit(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], bool bf16,
               const std::source_location& where);
void mma_s8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
            const std::source_location& where);
void mma_e4m3(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
              const std::source_location& where);
void ldmatrix(unsigned* d, int num, const void* row, bool transposed,
              const std::source_location& where);
void copy_later(void* shared, const void* global, unsigned bytes,
                const std::source_location& where);
void close_copies();
void wait_for_copies(std::size_t pending);
unsigned pack_16bit(float low, float high, bool bf16);
unsigned short pack_8bit(float low, float high);

}  // namespace cuda_emulation

namespace miniacc::ops::cuda::ptx {

using Where = std::source_location;

inline unsigned char* dynamic_shared() {
  extern thread_local unsigned char miniacc_dynamic_shared[];
  return miniacc_dynamic_shared;
}

inline void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  cuda_emulation::mma_16bit(d, a, b, true, Where::current());
}
inline void mma_f16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  cuda_emulation::mma_16bit(d, a, b, false, Where::current());
}
inline void mma_s8(std::int32_t (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  cuda_emulation::mma_s8(d, a, b, Where::current());
}
inline void mma_e4m3(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  cuda_emulation::mma_e4m3(d, a, b, Where::current());
}

inline void ldmatrix_x4(std::uint32_t (&r)[4], const void* row) {
  cuda_emulation::ldmatrix(r, 4, row, false, Where::current());
}
inline void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* row) {
  cuda_emulation::ldmatrix(r, 4, row, true, Where::current());
}

inline void cp_async_16(void* shared, const void* global, bool valid) {
  cuda_emulation::copy_later(shared, global, valid ? 16 : 0, Where::current());
}
inline void cp_async_commit() { cuda_emulation::close_copies(); }
template <int kLeft>
void cp_async_wait() {
  static_assert(kLeft >= 0);
  cuda_emulation::wait_for_copies(kLeft);
}

/// Subnormal arguments and results are zeros, as with .ftz; else better than the card's.
inline float exp2_approx(float x) {
  const float y = std::exp2(std::fpclassify(x) == FP_SUBNORMAL ? 0.0F : x);
  return std::fpclassify(y) == FP_SUBNORMAL ? 0.0F : y;
}

inline std::uint32_t pack_bf16(float low, float high) {
  return cuda_emulation::pack_16bit(low, high, true);
}
inline std::uint32_t pack_f16(float low, float high) {
  return cuda_emulation::pack_16bit(low, high, false);
}
inline std::uint32_t pack_e4m3(float a, float b, float c, float d) {
  return cuda_emulation::pack_8bit(a, b) |
         static_cast<std::uint32_t>(cuda_emulation::pack_8bit(c, d)) << 16;
}

}  // namespace miniacc::ops::cuda::ptx
