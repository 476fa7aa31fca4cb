// How the emulation runs blocks: order, barriers, warps, shared memory, faults.
#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "cuda_emulation/tests/support.cuh"
#include "kernels/cuda/ptx.cuh"

namespace cuda_emulation::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Blocks : public EmulationTest {
 protected:
  static void expect_trouble(cudaError_t error, cudaError_t wanted, const char* text) {
    EXPECT_EQ(error, wanted);
    ASSERT_EQ(reports().size(), 1U);
    EXPECT_THAT(reports()[0], HasSubstr(text));
    EXPECT_EQ(cudaDeviceSynchronize(), wanted) << "sticks to the context";
  }
};

const Schedule kOrders[] = {{.threads = Order::kForward},
                            {.threads = Order::kReverse},
                            {.threads = Order::kRandom, .seed = 5}};

__global__ void write_indices(int* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] += static_cast<int>(thread + 1);
}

TEST_F(Blocks, EveryThreadRunsOnceWithItsIndices) {
  for (const Schedule& order : kOrders) {
    set_schedule(order);
    constexpr std::size_t kSize = 2 * 3 * 4 * 5 * 3 * 2;
    int* out = device_array(std::vector<int>(kSize, 0));
    ASSERT_EQ(run(write_indices, dim3(2, 3, 4), dim3(5, 3, 2), out), cudaSuccess);
    const std::vector<int> values = host_values(out, kSize);
    for (std::size_t i = 0; i < kSize; ++i) {
      EXPECT_EQ(values[i], static_cast<int>(i % 30 + 1));
    }
  }
}

__global__ void record_order(int* order, int* count) {
  order[atomicAdd(count, 1)] = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

TEST_F(Blocks, TheScheduleDecidesTheOrder) {
  const auto order_of = [](const Schedule& schedule) {
    set_schedule(schedule);
    int* order = device_array(std::vector<int>(6, -1));
    int* count = device_array(std::vector<int>(1, 0));
    EXPECT_EQ(run(record_order, dim3(2), dim3(3), order, count), cudaSuccess);
    return host_values(order, 6);
  };
  EXPECT_THAT(order_of({.threads = Order::kForward}), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(order_of({.threads = Order::kReverse}), ElementsAre(5, 4, 3, 2, 1, 0));
  const auto random = order_of({.threads = Order::kRandom, .seed = 1});
  bool differs = false;
  for (std::uint64_t seed = 2; seed < 8; ++seed) {
    differs = differs || order_of({.threads = Order::kRandom, .seed = seed}) != random;
  }
  EXPECT_TRUE(differs);
}

template <bool kBarrier>
__global__ void reverse_block(int* values) {
  __shared__ int tile[64];
  tile[threadIdx.x] = values[threadIdx.x];
  if constexpr (kBarrier) {
    __syncthreads();
  }
  values[threadIdx.x] = tile[63 - threadIdx.x];
}

TEST_F(Blocks, AMissingBarrierShowsAndABarrierHolds) {
  std::vector<int> numbers(64);
  std::iota(numbers.begin(), numbers.end(), 0);
  const std::vector<int> reversed(numbers.rbegin(), numbers.rend());
  for (const Schedule& order : kOrders) {
    set_schedule(order);
    int* values = device_array(numbers);
    ASSERT_EQ(run(reverse_block<true>, dim3(1), dim3(64), values), cudaSuccess);
    EXPECT_EQ(host_values(values, 64), reversed);
    values = device_array(numbers);
    ASSERT_EQ(run(reverse_block<false>, dim3(1), dim3(64), values), cudaSuccess);
    EXPECT_NE(host_values(values, 64), reversed);
  }
}

__global__ void read_shared(float* static_value, float* dynamic_value) {
  __shared__ float never_written[4];
  const auto* dynamic = reinterpret_cast<const float*>(miniacc::ops::cuda::ptx::dynamic_shared());
  static_value[blockIdx.x] = never_written[3];
  dynamic_value[blockIdx.x] = dynamic[7];
  never_written[3] = 1.0F;
  reinterpret_cast<float*>(miniacc::ops::cuda::ptx::dynamic_shared())[7] = 1.0F;
}

TEST_F(Blocks, SharedMemoryStartsAsNaNInEveryBlock) {
  float* fixed = device_array(std::vector<float>(3, 0.0F));
  float* dynamic = device_array(std::vector<float>(3, 0.0F));
  ASSERT_EQ(start(read_shared, dim3(3), dim3(1), 32, nullptr, fixed, dynamic), cudaSuccess);
  for (const float* data : {fixed, dynamic}) {
    for (const float value : host_values(data, 3)) {
      EXPECT_TRUE(std::isnan(value)) << value;
    }
  }
}

__global__ void write_dynamic(std::size_t at) { miniacc::ops::cuda::ptx::dynamic_shared()[at] = 1; }

TEST_F(Blocks, DynamicSharedMemoryHasTheSizeAskedFor) {
  ASSERT_EQ(start(write_dynamic, dim3(1), dim3(1), 100, nullptr, std::size_t{99}), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(start(write_dynamic, dim3(1), dim3(1), 100, nullptr, std::size_t{100}), cudaSuccess);
  expect_trouble(cudaDeviceSynchronize(), cudaErrorLaunchFailure,
                 "behind the dynamic shared memory of 100 bytes");
}

TEST_F(Blocks, MoreDynamicSharedMemoryMustBeGranted) {
  constexpr std::size_t kBig = std::size_t{96} << 10;
  EXPECT_EQ(start(write_dynamic, dim3(1), dim3(1), kBig, nullptr, kBig - 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(write_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(kBig)),
            cudaSuccess);
  EXPECT_EQ(start(write_dynamic, dim3(1), dim3(1), kBig, nullptr, kBig - 1), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  reset({.compute_major = 8, .compute_minor = 9});
  EXPECT_EQ(
      cudaFuncSetAttribute(write_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10),
      cudaErrorInvalidValue);
}

__global__ void divergent_by_branch() {
  if (threadIdx.x < 16) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
__global__ void divergent_by_return() {
  if (threadIdx.x != 5) {
    __syncthreads();
  }
}

TEST_F(Blocks, ADivergentBarrierIsAnError) {
  expect_trouble(run(divergent_by_branch, dim3(1), dim3(32)), cudaErrorLaunchFailure,
                 "divergent barrier: threads wait at block_test.cu:");
  reset();
  expect_trouble(run(divergent_by_return, dim3(2), dim3(32)), cudaErrorLaunchFailure,
                 "divergent barrier: 32 threads, 1 have ended, 31 wait at __syncthreads");
}

__global__ void divergent_warp() {
  if (threadIdx.x % 2 == 0) {
    __syncwarp();
  } else {
    __shfl_xor_sync(0xFFFFFFFF, 1, 1);
  }
}
__global__ void warp_against_block() {
  if (threadIdx.x < 16) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}
__global__ void calls_for_others() { __syncwarp(2); }

TEST_F(Blocks, LanesThatWaitForEachOtherInVainAreAnError) {
  expect_trouble(run(divergent_warp, dim3(1), dim3(32)), cudaErrorLaunchFailure,
                 "lanes of a warp wait for each other in different calls");
  reset();
  expect_trouble(run(warp_against_block, dim3(1), dim3(32)), cudaErrorLaunchFailure,
                 "16 wait in __syncwarp");
  reset();
  expect_trouble(run(calls_for_others, dim3(1), dim3(1)), cudaErrorLaunchFailure,
                 "its own bit is not in the mask");
}

__global__ void votes(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  out[lane] = static_cast<int>(__ballot_sync(0xFFFFFFFF, lane % 3 == 0));
  out[32 + lane] = __any_sync(0xFFFFFFFF, lane == 31) + 2 * __all_sync(0xFFFFFFFF, lane < 31);
  out[64 + lane] = __syncthreads_count(lane < 7) + 100 * __syncthreads_or(lane == 9) +
                   1000 * __syncthreads_and(lane < 32);
  out[96 + lane] = __reduce_max_sync(0xFFFFFFFF, lane) + __reduce_add_sync(0xFFFFFFFF, 1);
}

TEST_F(Blocks, Votes) {
  for (const Schedule& order : kOrders) {
    set_schedule(order);
    int* out = device_array(std::vector<int>(128, 0));
    ASSERT_EQ(run(votes, dim3(1), dim3(32), out), cudaSuccess);
    const std::vector<int> values = host_values(out, 128);
    for (std::size_t lane = 0; lane < 32; ++lane) {
      EXPECT_EQ(values[lane], 0x49249249);
      EXPECT_EQ(values[32 + lane], 1);
      EXPECT_EQ(values[64 + lane], 1107);
      EXPECT_EQ(values[96 + lane], 63);
    }
  }
}

__global__ void shuffles(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  out[lane] = __shfl_xor_sync(0xFFFFFFFF, lane, 5);
  out[32 + lane] = __shfl_down_sync(0xFFFFFFFF, lane, 3, 8);
  out[64 + lane] = __shfl_up_sync(0xFFFFFFFF, lane, 3, 8);
  out[96 + lane] = __shfl_sync(0xFFFFFFFF, lane, 9, 8);
  if (lane < 8) {  // a part of the warp by its mask
    out[128 + lane] = __shfl_sync(0xFF, lane, 20);
  }
}

TEST_F(Blocks, ShufflesFollowThePtxFormulae) {
  int* out = device_array(std::vector<int>(136, 0));
  ASSERT_EQ(run(shuffles, dim3(1), dim3(32), out), cudaSuccess);
  const std::vector<int> values = host_values(out, 136);
  for (int lane = 0; lane < 32; ++lane) {
    const auto at = static_cast<std::size_t>(lane);
    EXPECT_EQ(values[at], lane ^ 5);
    EXPECT_EQ(values[32 + at], lane % 8 + 3 < 8 ? lane + 3 : lane);
    EXPECT_EQ(values[64 + at], lane % 8 >= 3 ? lane - 3 : lane);
    EXPECT_EQ(values[96 + at], lane / 8 * 8 + 1);
  }
  EXPECT_EQ(values[128], -1) << "a lane outside the mask gives poison";
}

__global__ void write_at(float* data, std::int64_t at) { data[at] = 1.0F; }
__global__ void read_at(float* out, const float* data, std::int64_t at) { *out = data[at]; }

TEST_F(Blocks, AccessBehindAnAllocationIsFound) {
  float* data = device_array(std::vector<float>(64, 0.0F));  // ends at a page: the read faults
  float* out = device_array(std::vector<float>(64, 0.0F));
  ASSERT_EQ(run(read_at, dim3(1), dim3(1), out, data, 63), cudaSuccess);
  expect_trouble(run(read_at, dim3(1), dim3(1), out, data, 64), cudaErrorIllegalAddress,
                 "memory fault");
  reset();
  data = device_array(std::vector<float>(65, 0.0F));  // ends before it: the write is noticed
  ASSERT_EQ(run(write_at, dim3(1), dim3(1), data, 64), cudaSuccess);
  expect_trouble(run(write_at, dim3(1), dim3(1), data, 65), cudaErrorLaunchFailure,
                 "written behind an allocation of 260 bytes");
  reset();
  data = device_array(std::vector<float>(64, 0.0F));
  expect_trouble(run(write_at, dim3(1), dim3(1), data, -1), cudaErrorLaunchFailure,
                 "written before an allocation of 256 bytes");
}

TEST_F(Blocks, HostAndFreedPointersAreFound) {
  float host[2] = {};
  expect_trouble(run(write_at, dim3(1), dim3(1), host, 0), cudaErrorIllegalAddress,
                 "pointer argument 0 is no device memory");
  reset();
  float* data = device_array(std::vector<float>(4, 0.0F));
  ASSERT_EQ(cudaFree(data), cudaSuccess);
  expect_trouble(run(write_at, dim3(1), dim3(1), data, 0), cudaErrorIllegalAddress,
                 "pointer argument 0 is freed device memory");
}

TEST_F(Blocks, PinnedMemoryMayBeUsedByKernels) {
  void* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, 16), cudaSuccess);
  ASSERT_EQ(run(write_at, dim3(1), dim3(1), static_cast<float*>(pinned), 2), cudaSuccess);
  EXPECT_EQ(static_cast<float*>(pinned)[2], 1.0F);
}

__global__ void trap_in_one() {
  if (threadIdx.x == 3) {
    __trap();
  }
}

TEST_F(Blocks, ATrapStopsTheLaunchAndNamesTheThread) {
  expect_trouble(run(trap_in_one, dim3(1), dim3(8)), cudaErrorLaunchFailure,
                 "block (0,0,0) thread (3,0,0): __trap()");
}

TEST_F(Blocks, RefusesWhatADriverRefuses) {
  EXPECT_EQ(start(trap_in_one, dim3(0), dim3(1), 0, nullptr), cudaErrorInvalidConfiguration);
  EXPECT_EQ(start(trap_in_one, dim3(1, 65536), dim3(1), 0, nullptr), cudaErrorInvalidConfiguration);
  EXPECT_EQ(start(trap_in_one, dim3(1), dim3(1025), 0, nullptr), cudaErrorInvalidConfiguration);
  EXPECT_EQ(start(trap_in_one, dim3(1), dim3(1), std::size_t{49} << 10, nullptr),
            cudaErrorInvalidValue);
}

using BlocksDeathTest = Blocks;

TEST_F(BlocksDeathTest, HostCodeCannotTouchDeviceMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  volatile float* data = device_array(std::vector<float>(4, 0.0F));
  EXPECT_DEATH(data[0] = 1.0F, "host code touched device memory");
}

}  // namespace
}  // namespace cuda_emulation::testing
