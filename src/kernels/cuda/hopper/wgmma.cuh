#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

/// The instructions of sm_90a that attention here needs, one function each; compiled for 90a only.
///
/// Operands in shared memory: rows of 128 bytes, the 16-byte chunk c of row r at chunk c ^ (r % 8),
/// tiles of 8 rows one after the other (1024 bytes), 1024-byte aligned: "K-major, 128-byte swizzle"
/// of PTX ISA "Asynchronous warpgroup level matrix instructions". A step of a product takes 32
/// bytes of every row, so its descriptor begins 32 bytes after that of the step before.
///
/// Registers of a warpgroup, warp w, lane 4·g + t:
///   sums [64 × n]  d[4·i ..]: row 16w + g, columns 8i + 2t and + 1; then row 16w + g + 8, the same
///   A [64 × 32 bytes]  a[0] row 16w + g bytes 4t.., a[1] row 16w + g + 8, a[2] and a[3] the same
///   16
///         bytes on
namespace miniacc::ops::cuda::hopper {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Descriptor of an operand that begins at this shared address, see above.
__device__ inline std::uint64_t operand(std::uint32_t address) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kGroupBytes = std::uint64_t{1024 / 16}
                                        << 32;               // from 8 rows to the next 8
  constexpr std::uint64_t kUnused = std::uint64_t{1} << 16;  // the other stride, of other layouts
  return kSwizzle128 | kGroupBytes | kUnused | ((address & 0x3FFFFU) >> 4);
}

/// Before the first product after this warpgroup wrote registers that one uses.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }

__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

/// Until at most kLeft groups of products are not done.
template <int kLeft>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(kLeft) : "memory");
}

/// The compiler knows nothing of when a product writes its sums: no use of them moves above this.
template <typename T, int kCount>
__device__ inline void pin(T (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      asm volatile("" : "+f"(values[i]) : : "memory");
    } else {
      asm volatile("" : "+r"(values[i]) : : "memory");
    }
  }
}

#define MINIACC_SUMS_4(how, d, i) \
  how((d)[i]), how((d)[(i) + 1]), how((d)[(i) + 2]), how((d)[(i) + 3])
#define MINIACC_SUMS_16(how, d, i)                                                             \
  MINIACC_SUMS_4(how, d, i), MINIACC_SUMS_4(how, d, (i) + 4), MINIACC_SUMS_4(how, d, (i) + 8), \
      MINIACC_SUMS_4(how, d, (i) + 12)
#define MINIACC_SUMS_64(how, d)                                                         \
  MINIACC_SUMS_16(how, d, 0), MINIACC_SUMS_16(how, d, 16), MINIACC_SUMS_16(how, d, 32), \
      MINIACC_SUMS_16(how, d, 48)
#define MINIACC_SUMS_TEXT                                                                        \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"  \
  "%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"

/// d = A·B or, where kAdd, d += A·B: 64 × 128, 32 i8 deep, i32 sums; A [64 rows] and B [128 rows]
/// in shared memory.
template <bool kAdd>
__device__ inline void wgmma_s8(std::int32_t (&d)[64], std::uint64_t a, std::uint64_t b) {
  if constexpr (kAdd) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 " MINIACC_SUMS_TEXT ", %64, %65, p;\n}\n"
        : MINIACC_SUMS_64("+r", d)
        : "l"(a), "l"(b)
        : "memory");
  } else {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 " MINIACC_SUMS_TEXT ", %64, %65, p;\n}\n"
        : MINIACC_SUMS_64("=r", d)
        : "l"(a), "l"(b)
        : "memory");
  }
}

/// The same for e4m3 and f32 sums, which the instruction keeps with fewer than 23 bits; A in
/// registers, a[0] to a[3].
template <bool kAdd>
__device__ inline void wgmma_e4m3(float (&d)[64], const std::uint32_t* a, std::uint64_t b) {
  if constexpr (kAdd) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 " MINIACC_SUMS_TEXT
        ", {%64,%65,%66,%67}, %68, p, 1, 1;\n}\n"
        : MINIACC_SUMS_64("+f", d)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
        : "memory");
  } else {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 " MINIACC_SUMS_TEXT
        ", {%64,%65,%66,%67}, %68, p, 1, 1;\n}\n"
        : MINIACC_SUMS_64("=f", d)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
        : "memory");
  }
}

#undef MINIACC_SUMS_TEXT
#undef MINIACC_SUMS_64
#undef MINIACC_SUMS_16
#undef MINIACC_SUMS_4

/// A barrier in shared memory that counts arrivals and bytes; phases alternate.
struct Barrier {
  std::uint64_t state;

  __device__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 :
                 : "r"(shared_address(&state)), "r"(arrivals)
                 : "memory");
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
                 :
                 : "r"(shared_address(&state))
                 : "memory");
  }
  /// Arrives and makes the phase wait for this many bytes, too.
  __device__ void expect(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(shared_address(&state)), "r"(bytes)
                 : "memory");
  }
  /// Until the phase of this parity is over; the phase before the first one has parity 1.
  __device__ void wait(int parity) {
    std::uint32_t done = 0;
#ifdef MINIACC_HOPPER_SPIN_LIMIT
    for (std::uint32_t tries = 0; done == 0; ++tries) {
      if (tries > MINIACC_HOPPER_SPIN_LIMIT) {  // a fault: __trap makes ptxas ignore setmaxnreg
        asm volatile("st.global.u32 [%0], %1;" : : "l"(std::uint64_t{16}), "r"(tries) : "memory");
      }
#else
    while (done == 0) {
#endif
      asm volatile(
          "{\n.reg .pred p;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
          : "=r"(done)
          : "r"(shared_address(&state)), "r"(parity)
          : "memory");
    }
  }
};

/// After barriers were initialised, before the threads meet and use them.
__device__ inline void fence_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

/// Starts a copy from global to shared memory that arrives at `barrier`; addresses and size are
/// multiples of 16 bytes.
__device__ inline void bulk_copy(void* shared, const void* global, int bytes, Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :
      : "r"(shared_address(shared)), "l"(global), "r"(bytes), "r"(shared_address(&barrier.state))
      : "memory");
}

template <int kRegisters>
__device__ inline void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(kRegisters));
}
template <int kRegisters>
__device__ inline void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(kRegisters));
}

/// Named barriers: `threads` threads in all, whole warps.
__device__ inline void named_sync(int name, int threads) {
  asm volatile("bar.sync %0, %1;" : : "r"(name), "r"(threads) : "memory");
}
__device__ inline void named_arrive(int name, int threads) {
  asm volatile("bar.arrive %0, %1;" : : "r"(name), "r"(threads) : "memory");
}

/// The larger of three integers, one instruction.
__device__ inline std::int32_t max3(std::int32_t a, std::int32_t b, std::int32_t c) {
  return __vimax3_s32(a, b, c);
}

/// Four values rounded to nearest even e4m3, saturating; `a` in the lowest byte.
__device__ inline std::uint32_t pack_e4m3(float a, float b, float c, float d) {
  std::uint32_t packed;
  asm("{\n.reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n}\n"
      : "=r"(packed)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return packed;
}

__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace miniacc::ops::cuda::hopper
