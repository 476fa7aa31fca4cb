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

inline void mma_m16n8k16_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  cuda_emulation::mma_16bit(d, a, b, true, Where::current());
}
inline void mma_m16n8k16_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  cuda_emulation::mma_16bit(d, a, b, false, Where::current());
}
inline void mma_m16n8k32_s8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  cuda_emulation::mma_s8(d, a, b, Where::current());
}
inline void mma_m16n8k32_e4m3(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  cuda_emulation::mma_e4m3(d, a, b, Where::current());
}

inline void ldmatrix_x1(unsigned (&d)[1], const void* row) {
  cuda_emulation::ldmatrix(d, 1, row, false, Where::current());
}
inline void ldmatrix_x2(unsigned (&d)[2], const void* row) {
  cuda_emulation::ldmatrix(d, 2, row, false, Where::current());
}
inline void ldmatrix_x4(unsigned (&d)[4], const void* row) {
  cuda_emulation::ldmatrix(d, 4, row, false, Where::current());
}
inline void ldmatrix_x1_trans(unsigned (&d)[1], const void* row) {
  cuda_emulation::ldmatrix(d, 1, row, true, Where::current());
}
inline void ldmatrix_x2_trans(unsigned (&d)[2], const void* row) {
  cuda_emulation::ldmatrix(d, 2, row, true, Where::current());
}
inline void ldmatrix_x4_trans(unsigned (&d)[4], const void* row) {
  cuda_emulation::ldmatrix(d, 4, row, true, Where::current());
}

inline void cp_async_16(void* shared, const void* global) {
  cuda_emulation::copy_later(shared, global, 16, Where::current());
}
inline void cp_async_16(void* shared, const void* global, unsigned bytes) {
  cuda_emulation::copy_later(shared, global, bytes, Where::current());
}
inline void cp_async_commit() { cuda_emulation::close_copies(); }
template <int kPending>
inline void cp_async_wait() {
  static_assert(kPending >= 0);
  cuda_emulation::wait_for_copies(kPending);
}

inline unsigned pack_bf16(float low, float high) {
  return cuda_emulation::pack_16bit(low, high, true);
}
inline unsigned pack_f16(float low, float high) {
  return cuda_emulation::pack_16bit(low, high, false);
}
inline unsigned short pack_e4m3(float low, float high) {
  return cuda_emulation::pack_8bit(low, high);
}

}  // namespace miniacc::ops::cuda::ptx
