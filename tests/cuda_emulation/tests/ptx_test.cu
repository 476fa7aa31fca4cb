// The emulated PTX instructions against the formulae of the PTX ISA, written here a second time the
// way the ISA writes them (from fragment element to row and column), and against plain products.
#include <gmock/gmock.h>

#include <cmath>
#include <numeric>
#include <random>

#include "cuda_emulation/tests/support.cuh"
#include "emulated/float_bits.h"
#include "kernels/cuda/ptx.cuh"

namespace cuda_emulation::testing {
namespace {

namespace ptx = miniacc::ops::cuda::ptx;
using ::testing::HasSubstr;

class Ptx : public EmulationTest {};

enum class Kind { kBf16, kF16, kS8, kE4m3 };

// PTX ISA 8.7, "Matrix Fragments for mma.m16n8k16 with floating point type": element i of A (8 a
// lane) and B (4), and of the accumulators (4).
unsigned row_a16(unsigned lane, unsigned i) {
  return i < 2 || (4 <= i && i < 6) ? lane / 4 : lane / 4 + 8;
}
unsigned column_a16(unsigned lane, unsigned i) {
  return i < 4 ? lane % 4 * 2 + (i & 1) : lane % 4 * 2 + (i & 1) + 8;
}
unsigned row_b16(unsigned lane, unsigned i) {
  return i < 2 ? lane % 4 * 2 + (i & 1) : lane % 4 * 2 + (i & 1) + 8;
}
// "Matrix Fragments for mma.m16n8k32": 16 elements of A, 8 of B.
unsigned row_a8(unsigned lane, unsigned i) {
  return i < 4 || (8 <= i && i < 12) ? lane / 4 : lane / 4 + 8;
}
unsigned column_a8(unsigned lane, unsigned i) {
  return i < 8 ? lane % 4 * 4 + (i & 3) : lane % 4 * 4 + (i & 3) + 16;
}
unsigned row_b8(unsigned lane, unsigned i) {
  return i < 4 ? lane % 4 * 4 + (i & 3) : lane % 4 * 4 + (i & 3) + 16;
}
unsigned column_b(unsigned lane) { return lane / 4; }
unsigned row_c(unsigned lane, unsigned i) { return i < 2 ? lane / 4 : lane / 4 + 8; }
unsigned column_c(unsigned lane, unsigned i) { return lane % 4 * 2 + (i & 1); }

template <Kind kKind>
__global__ void one_mma(const unsigned* a, const unsigned* b, float* d) {
  const unsigned lane = threadIdx.x;
  const unsigned of_a[4] = {a[lane * 4], a[lane * 4 + 1], a[lane * 4 + 2], a[lane * 4 + 3]};
  const unsigned of_b[2] = {b[lane * 2], b[lane * 2 + 1]};
  float sums[4];
  int whole[4];
  for (unsigned i = 0; i < 4; ++i) {
    sums[i] = d[lane * 4 + i];
    whole[i] = static_cast<int>(sums[i]);
  }
  if constexpr (kKind == Kind::kBf16) {
    ptx::mma_bf16(sums, of_a, of_b);
  } else if constexpr (kKind == Kind::kF16) {
    ptx::mma_f16(sums, of_a, of_b);
  } else if constexpr (kKind == Kind::kS8) {
    ptx::mma_s8(whole, of_a, of_b);
  } else {
    ptx::mma_e4m3(sums, of_a, of_b);
  }
  for (unsigned i = 0; i < 4; ++i) {
    d[lane * 4 + i] = kKind == Kind::kS8 ? static_cast<float>(whole[i]) : sums[i];
  }
}

unsigned bits_of(Kind kind, float value) {
  switch (kind) {
    case Kind::kBf16:
      return bf16_bits(value);
    case Kind::kF16:
      return half_bits(value);
    case Kind::kS8:
      return static_cast<std::uint8_t>(static_cast<int>(value));
    case Kind::kE4m3:
      return e4m3_bits(value);
  }
  return 0;
}

/// Small whole numbers: every format holds them and every sum is exact.
template <Kind kKind>
void expect_product() {
  constexpr bool kBytes = kKind == Kind::kS8 || kKind == Kind::kE4m3;
  constexpr unsigned kDepth = kBytes ? 32 : 16;
  constexpr unsigned kPerWord = kBytes ? 4 : 2;
  std::mt19937 random(3);
  std::uniform_int_distribution<int> number(-8, 8);
  std::vector<float> a(16 * kDepth);
  std::vector<float> b(kDepth * 8);
  std::vector<float> c(16 * 8);
  for (auto* values : {&a, &b, &c}) {
    for (float& value : *values) {
      value = static_cast<float>(number(random));
    }
  }
  std::vector<unsigned> a_words(32 * 4, 0);
  std::vector<unsigned> b_words(32 * 2, 0);
  std::vector<float> d(32 * 4);
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned i = 0; i < 4 * kPerWord; ++i) {
      const unsigned row = kBytes ? row_a8(lane, i) : row_a16(lane, i);
      const unsigned column = kBytes ? column_a8(lane, i) : column_a16(lane, i);
      a_words[lane * 4 + i / kPerWord] |= bits_of(kKind, a[row * kDepth + column])
                                          << (i % kPerWord * (32 / kPerWord));
    }
    for (unsigned i = 0; i < 2 * kPerWord; ++i) {
      const unsigned row = kBytes ? row_b8(lane, i) : row_b16(lane, i);
      b_words[lane * 2 + i / kPerWord] |= bits_of(kKind, b[row * 8 + column_b(lane)])
                                          << (i % kPerWord * (32 / kPerWord));
    }
    for (unsigned i = 0; i < 4; ++i) {
      d[lane * 4 + i] = c[row_c(lane, i) * 8 + column_c(lane, i)];
    }
  }
  float* out = device_array(d);
  ASSERT_EQ(
      run(one_mma<kKind>, dim3(1), dim3(32), device_array(a_words), device_array(b_words), out),
      cudaSuccess);
  const std::vector<float> found = host_values(out, d.size());
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = row_c(lane, i);
      const unsigned column = column_c(lane, i);
      float wanted = c[row * 8 + column];
      for (unsigned k = 0; k < kDepth; ++k) {
        wanted += a[row * kDepth + k] * b[k * 8 + column];
      }
      EXPECT_EQ(found[lane * 4 + i], wanted) << "row " << row << " column " << column;
    }
  }
}

TEST_F(Ptx, MmaBf16) { expect_product<Kind::kBf16>(); }
TEST_F(Ptx, MmaF16) { expect_product<Kind::kF16>(); }
TEST_F(Ptx, MmaS8) { expect_product<Kind::kS8>(); }
TEST_F(Ptx, MmaE4m3) { expect_product<Kind::kE4m3>(); }

TEST_F(Ptx, MmaE4m3StopsOnOlderCards) {
  reset({.compute_major = 8, .compute_minor = 6});
  unsigned* words = device_array(std::vector<unsigned>(128, 0));
  float* out = device_array(std::vector<float>(128, 0.0F));
  EXPECT_EQ(run(one_mma<Kind::kE4m3>, dim3(1), dim3(32), words, words, out),
            cudaErrorLaunchFailure);
  ASSERT_FALSE(reports().empty());
  EXPECT_THAT(reports()[0], HasSubstr("needs compute capability 8.9"));
}

TEST_F(Ptx, MmaNeedsTheWholeWarp) {
  unsigned* words = device_array(std::vector<unsigned>(128, 0));
  float* out = device_array(std::vector<float>(128, 0.0F));
  EXPECT_EQ(run(one_mma<Kind::kBf16>, dim3(1), dim3(16), words, words, out),
            cudaErrorLaunchFailure);
}

template <bool kTransposed>
__global__ void load_matrices(unsigned* out) {
  __shared__ __align__(16) std::uint16_t tile[32 * 8];  // 4 matrices, row after row
  const unsigned lane = threadIdx.x;
  for (unsigned i = lane; i < 32 * 8; i += 32) {
    tile[i] = static_cast<std::uint16_t>(i);
  }
  __syncthreads();
  unsigned words[4];
  if constexpr (kTransposed) {
    ptx::ldmatrix_x4_trans(words, tile + lane * 8);
  } else {
    ptx::ldmatrix_x4(words, tile + lane * 8);
  }
  for (unsigned i = 0; i < 4; ++i) {
    out[lane * 4 + i] = words[i];
  }
}

template <bool kTransposed>
void expect_matrices() {
  unsigned* out = device_array(std::vector<unsigned>(128, 0));
  ASSERT_EQ(run(load_matrices<kTransposed>, dim3(1), dim3(32), out), cudaSuccess);
  const std::vector<unsigned> words = host_values(out, 128);
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned matrix = 0; matrix < 4; ++matrix) {
      for (unsigned half = 0; half < 2; ++half) {
        // "each thread receives a fragment of a row": row lane/4, elements 2(lane%4) and the next.
        unsigned row = lane / 4;
        unsigned column = 2 * (lane % 4) + half;
        if (kTransposed) {
          std::swap(row, column);
        }
        EXPECT_EQ(words[lane * 4 + matrix] >> (16 * half) & 0xFFFF, matrix * 64 + row * 8 + column);
      }
    }
  }
}

TEST_F(Ptx, Ldmatrix) { expect_matrices<false>(); }
TEST_F(Ptx, LdmatrixTransposed) { expect_matrices<true>(); }

__global__ void load_misaligned(const unsigned* global) {
  __shared__ __align__(16) unsigned char tile[1024];
  unsigned words[4];
  ptx::ldmatrix_x4(words, global != nullptr ? static_cast<const void*>(global) : tile + 8);
}

TEST_F(Ptx, LdmatrixWantsAlignedSharedMemory) {
  EXPECT_EQ(run(load_misaligned, dim3(1), dim3(32), nullptr), cudaErrorLaunchFailure);
  reset();
  unsigned* global = device_array(std::vector<unsigned>(128, 0));
  EXPECT_EQ(run(load_misaligned, dim3(1), dim3(32), global), cudaErrorLaunchFailure);
}

template <bool kWait>
__global__ void copy_async(const float* in, float* out) {
  __shared__ __align__(16) float tile[2][32 * 4];
  const unsigned thread = threadIdx.x;
  ptx::cp_async_16(tile[0] + thread * 4, in + thread * 4, true);
  ptx::cp_async_commit();
  ptx::cp_async_16(tile[1] + thread * 4, in + thread * 4, thread % 2 == 0);
  ptx::cp_async_commit();
  if constexpr (kWait) {
    ptx::cp_async_wait<1>();  // the first group only
  }
  __syncthreads();
  for (unsigned i = 0; i < 4; ++i) {
    out[thread * 4 + i] = tile[0][(31 - thread) * 4 + i];
    out[128 + thread * 4 + i] = tile[1][thread * 4 + i];
  }
  ptx::cp_async_wait<0>();
  for (unsigned i = 0; i < 4; ++i) {
    out[256 + thread * 4 + i] = tile[1][thread * 4 + i];
  }
}

TEST_F(Ptx, CopiesArriveWhenTheyAreWaitedFor) {
  std::vector<float> in(128);
  std::iota(in.begin(), in.end(), 1.0F);
  float* out = device_array(std::vector<float>(384, 0.0F));
  ASSERT_EQ(run(copy_async<true>, dim3(1), dim3(32), device_array(in), out), cudaSuccess);
  std::vector<float> values = host_values(out, 384);
  for (std::size_t i = 0; i < 128; ++i) {
    EXPECT_EQ(values[i], in[(31 - i / 4) * 4 + i % 4]);
    EXPECT_TRUE(std::isnan(values[128 + i])) << "the second group is still under way";
    EXPECT_EQ(values[256 + i], i / 4 % 2 == 0 ? in[i] : 0.0F) << "zeros where it is not valid";
  }
  ASSERT_EQ(run(copy_async<false>, dim3(1), dim3(32), device_array(in), out), cudaSuccess);
  values = host_values(out, 384);
  EXPECT_TRUE(std::isnan(values[0])) << "a missing wait shows";
}

__global__ void pack(const float* in, unsigned* out) {
  out[0] = ptx::pack_bf16(in[0], in[1]);
  out[1] = ptx::pack_f16(in[0], in[1]);
  out[2] = ptx::pack_e4m3(in[0], in[1], in[1], in[0]);
}

TEST_F(Ptx, PackPutsTheFirstValueInTheLowBits) {
  unsigned* out = device_array(std::vector<unsigned>(3, 0));
  ASSERT_EQ(run(pack, dim3(1), dim3(1), device_array(std::vector<float>{1.0F, -2.0F}), out),
            cudaSuccess);
  const std::vector<unsigned> words = host_values(out, 3);
  EXPECT_EQ(words[0], 0xC0003F80U);
  EXPECT_EQ(words[1], 0xC0003C00U);
  EXPECT_EQ(words[2], 0x38C0C038U);
}

TEST(FloatBits, RoundTripsEveryNarrowValue) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const auto narrow = static_cast<std::uint16_t>(bits);
    if (!std::isnan(half_value(narrow))) {
      ASSERT_EQ(half_bits(half_value(narrow)), narrow);
    }
    if (!std::isnan(bf16_value(narrow))) {
      ASSERT_EQ(bf16_bits(bf16_value(narrow)), narrow);
    }
  }
  for (unsigned bits = 0; bits < 0x100; ++bits) {
    const auto narrow = static_cast<std::uint8_t>(bits);
    if (!std::isnan(e4m3_value(narrow))) {
      ASSERT_EQ(e4m3_bits(e4m3_value(narrow)), narrow);
    }
  }
}

TEST(FloatBits, RoundsToNearestEvenAndSaturates) {
  EXPECT_EQ(half_bits(2049.0F), half_bits(2048.0F));  // halfway: to the even one
  EXPECT_EQ(half_bits(2051.0F), half_bits(2052.0F));
  EXPECT_EQ(half_bits(65519.0F), half_bits(65504.0F));
  EXPECT_EQ(half_bits(65520.0F), 0x7C00);
  EXPECT_EQ(half_bits(std::ldexp(1.0F, -25)), 0) << "half of the smallest: to even, 0";
  EXPECT_EQ(half_bits(std::ldexp(3.0F, -26)), 1);
  EXPECT_EQ(bf16_bits(1.00390625F), 0x3F80) << "1 + 2^-8 is halfway";
  EXPECT_EQ(bf16_bits(1.01171875F), 0x3F82);
  EXPECT_EQ(e4m3_bits(1000.0F), 0x7E);
  EXPECT_EQ(e4m3_bits(-INFINITY), 0xFE);
  EXPECT_EQ(e4m3_bits(17.0F), e4m3_bits(16.0F));
  EXPECT_EQ(e4m3_bits(19.0F), e4m3_bits(20.0F));
  EXPECT_EQ(e4m3_bits(std::ldexp(1.0F, -10)), 0);
}

}  // namespace
}  // namespace cuda_emulation::testing
