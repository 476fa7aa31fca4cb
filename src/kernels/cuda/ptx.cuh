#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

/// The machine instructions that CUDA C++ has no name for, one function each; nothing else in this
/// folder writes assembly for mma.sync cards. A build that runs the kernels on the CPU gives these
/// functions other bodies with the same effect (tests/cuda_emulation/include/emulated/ptx.h).
///
/// Fragments of a warp's m16n8 product (PTX ISA, "Matrix Fragments for mma"), lane = 4·g + t:
///   a[4]  A rows g and g+8: a[0] row g, a[1] row g+8, a[2] row g, a[3] row g+8. A register holds 4
///         consecutive bytes of a row: bytes 4t.. of the first 16 for a[0] and a[1], of the second
///         16 for a[2] and a[3]. A row of A is 32 bytes: 16 values of 2 bytes or 32 of 1 byte
///   b[2]  column g of B (a row of the transposed B): bytes 4t.. of its first and second 16
///   d[4]  row g columns 2t, 2t+1, then row g+8 columns 2t, 2t+1
/// All 32 lanes of a warp call each of the functions marked "warp" together.
#ifndef __CUDACC__
#include <emulated/ptx.h>
#else
namespace miniacc::ops::cuda::ptx {

/// The block's dynamic shared memory, 128-byte aligned; its size is the launch's.
__device__ inline unsigned char* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char miniacc_dynamic_shared[];
  return miniacc_dynamic_shared;
}

/// d += A·B, 16 bf16 deep, f32 sums. Warp.
__device__ inline void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4],
                                const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// d += A·B, 16 f16 deep, f32 sums. Warp.
__device__ inline void mma_f16(float (&d)[4], const std::uint32_t (&a)[4],
                               const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// d += A·B, 32 i8 deep, i32 sums (wrapping). Warp.
__device__ inline void mma_s8(std::int32_t (&d)[4], const std::uint32_t (&a)[4],
                              const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// d += A·B, 32 e4m3 deep, f32 sums. Warp. Cards from sm_89 on; a trap on older ones.
__device__ inline void mma_e4m3(float (&d)[4], const std::uint32_t (&a)[4],
                                const std::uint32_t (&b)[2]) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();
#endif
}

/// Loads four 8×16-byte matrices from shared memory: lane l gives the address of row l % 8 of
/// matrix l / 8, 16-byte aligned. Lane 4·g + t receives bytes 4t.. of row g of matrix i in r[i].
/// Warp.
__device__ inline void ldmatrix_x4(std::uint32_t (&r)[4], const void* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/// The same with each matrix, taken as 8×8 values of 2 bytes, transposed: lane 4·g + t receives
/// values (row 2t, column g) and (row 2t+1, column g) of matrix i in r[i], the first in the low
/// half. Warp.
__device__ inline void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/// Starts a copy of 16 bytes from global to shared memory, both addresses 16-byte aligned. Where
/// `valid` is false nothing is read and the 16 bytes become zeros.
__device__ inline void cp_async_16(void* shared, const void* global, bool valid) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(address), "l"(global), "r"(bytes)
               : "memory");
}

/// Closes a group of the copies that this thread has started.
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" : : : "memory"); }

/// Waits until at most `kLeft` of this thread's groups are not done. A barrier after it makes the
/// copies of all threads visible to all.
template <int kLeft>
__device__ inline void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kLeft) : "memory");
}

/// 2^x to within 2 units in the last place of the result; subnormal results become 0.
__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Two values rounded to nearest even; `low` in the low half.
__device__ inline std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

/// The same for f16; beyond its range infinity.
__device__ inline std::uint32_t pack_f16(float low, float high) {
  std::uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

/// Four values rounded to nearest even e4m3, saturating at 448; `a` in the lowest byte. Cards from
/// sm_89 on; a trap on older ones.
__device__ inline std::uint32_t pack_e4m3(float a, float b, float c, float d) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
  std::uint16_t low;
  std::uint16_t high;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
  return static_cast<std::uint32_t>(low) | (static_cast<std::uint32_t>(high) << 16);
#else
  __trap();
  return 0;
#endif
}

}  // namespace miniacc::ops::cuda::ptx
#endif
