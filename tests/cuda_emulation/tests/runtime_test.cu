// The emulated runtime: memory, streams, events, injected failures, counters.
#include <gmock/gmock.h>

#include "cuda_emulation/tests/support.cuh"

namespace cuda_emulation::testing {
namespace {

class RuntimeTest : public EmulationTest {
 protected:
  static cudaStream_t make_stream() {
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    return stream;
  }
  static cudaEvent_t make_event() {
    cudaEvent_t event = nullptr;
    EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    return event;
  }
};

__global__ void add_one(int* value) { *value += 1; }
__global__ void twice(int* out, const int* in) { *out = *in * 2; }

TEST_F(RuntimeTest, WorkIsLateAndInOrderWithinAStream) {
  cudaStream_t stream = make_stream();
  int* data = device_array(std::vector<int>{0});
  int from = 5;
  int to = 0;
  ASSERT_EQ(cudaMemcpyAsync(data, &from, sizeof(int), cudaMemcpyHostToDevice, stream), cudaSuccess);
  ASSERT_EQ(start(add_one, dim3(1), dim3(1), 0, stream, data), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(&to, data, sizeof(int), cudaMemcpyDeviceToHost, stream), cudaSuccess);
  EXPECT_EQ(to, 0) << "nothing has run";
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  from = 7;  // the copy reads it when it runs: too early for the caller to reuse it
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(to, 8);
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
}

/// What a reader in another stream sees with and without waiting for the writer.
int read_across(bool with_event, const Schedule& schedule, cudaStream_t writer, cudaStream_t reader,
                cudaEvent_t event) {
  set_schedule(schedule);
  int* data = device_array(std::vector<int>{1});
  int* out = device_array(std::vector<int>{0});
  EXPECT_EQ(start(add_one, dim3(1), dim3(1), 0, writer, data), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event, writer), cudaSuccess);
  if (with_event) {
    EXPECT_EQ(cudaStreamWaitEvent(reader, event), cudaSuccess);
  }
  EXPECT_EQ(start(twice, dim3(1), dim3(1), 0, reader, out, data), cudaSuccess);
  int result = 0;
  EXPECT_EQ(cudaMemcpyAsync(&result, out, sizeof(int), cudaMemcpyDeviceToHost, reader),
            cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(reader), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(writer), cudaSuccess);
  return result;
}

TEST_F(RuntimeTest, AMissingEventWaitShowsAndAWaitHolds) {
  cudaStream_t writer = make_stream();
  cudaStream_t reader = make_stream();
  cudaEvent_t event = make_event();
  for (const Streams streams : {Streams::kLate, Streams::kRandom}) {
    bool wrong = false;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      const Schedule schedule{.streams = streams, .seed = seed};
      EXPECT_EQ(read_across(true, schedule, writer, reader, event), 4);
      wrong = wrong || read_across(false, schedule, writer, reader, event) != 4;
    }
    EXPECT_TRUE(wrong);
  }
}

TEST_F(RuntimeTest, AnEventStandsForItsLastRecording) {
  cudaStream_t stream = make_stream();
  cudaStream_t other = make_stream();
  cudaEvent_t event = make_event();
  int* data = device_array(std::vector<int>{0});
  EXPECT_EQ(cudaStreamWaitEvent(other, event), cudaSuccess) << "never recorded: no wait";
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
  ASSERT_EQ(start(add_one, dim3(1), dim3(1), 0, stream, data), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  ASSERT_EQ(start(add_one, dim3(1), dim3(1), 0, stream, data), cudaSuccess);
  ASSERT_EQ(cudaEventSynchronize(event), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady) << "only what the event stands for ran";
  // The stream is destroyed with work in it: that is still done.
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(host_values(data, 1)[0], 2);
}

TEST_F(RuntimeTest, FreeingWaitsForTheWork) {
  cudaStream_t stream = make_stream();
  int* data = device_array(std::vector<int>{1});
  int result = 0;
  ASSERT_EQ(start(add_one, dim3(1), dim3(1), 0, stream, data), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(&result, data, sizeof(int), cudaMemcpyDeviceToHost, stream),
            cudaSuccess);
  ASSERT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(result, 2);
}

TEST_F(RuntimeTest, CopiesAreChecked) {
  int* data = device_array(std::vector<int>{1, 2});
  int host[3] = {};
  EXPECT_EQ(cudaMemcpy(host, data, 8, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host, data, 12, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host, host, 4, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(data, 0, 12), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "such an error does not stick";
  EXPECT_EQ(cudaMemset(data, 0, 8), cudaSuccess);
  EXPECT_EQ(host_values(data, 2), (std::vector<int>{0, 0}));
  EXPECT_EQ(cudaFree(host), cudaErrorInvalidValue);
}

TEST_F(RuntimeTest, MemoryIsCountedWithThatOfOtherPrograms) {
  reset({.total_bytes = 10000});
  std::size_t free = 0;
  std::size_t total = 0;
  void* first = nullptr;
  void* second = nullptr;
  ASSERT_EQ(cudaMalloc(&first, 4000), cudaSuccess);
  set_other_programs_bytes(3000);
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(free, 3000U);
  EXPECT_EQ(total, 10000U);
  EXPECT_EQ(cudaMalloc(&second, 3001), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&second, 3000), cudaSuccess);
  EXPECT_EQ(held().bytes, 7000U);
  EXPECT_EQ(peak_bytes(), 7000U);
  ASSERT_EQ(cudaFree(second), cudaSuccess);
  let_others_take(6000, 2);
  ASSERT_EQ(cudaMalloc(&second, 1000), cudaSuccess);
  ASSERT_EQ(cudaFree(second), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&second, 1000), cudaErrorMemoryAllocation);
}

TEST_F(RuntimeTest, TheChosenCallFailsOnce) {
  int* data = device_array(std::vector<int>{1});
  fail_call(Call::kLaunch, 2);
  EXPECT_EQ(start(add_one, dim3(1), dim3(1), 0, nullptr, data), cudaSuccess);
  EXPECT_FALSE(call_failed());
  EXPECT_EQ(start(add_one, dim3(1), dim3(1), 0, nullptr, data), cudaErrorLaunchOutOfResources);
  EXPECT_TRUE(call_failed());
  EXPECT_EQ(start(add_one, dim3(1), dim3(1), 0, nullptr, data), cudaSuccess);
  EXPECT_EQ(host_values(data, 1)[0], 3);
  EXPECT_EQ(num_calls(Call::kLaunch), 3U);
  void* memory = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  fail_call(Call::kAny, 1);
  EXPECT_EQ(cudaMalloc(&memory, 1), cudaErrorMemoryAllocation);
  fail_call(Call::kStream, 1);
  EXPECT_NE(cudaStreamCreateWithFlags(&stream, 0), cudaSuccess);
  fail_call(Call::kEvent, 1);
  EXPECT_NE(cudaEventCreateWithFlags(&event, 0), cudaSuccess);
  fail_call(Call::kPin, 1);
  EXPECT_EQ(cudaMallocHost(&memory, 1), cudaErrorMemoryAllocation);
  fail_call(Call::kWait, 1);
  EXPECT_NE(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(RuntimeTest, WhatIsHeldIsCounted) {
  EXPECT_EQ(held(), Held{});
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 100), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&memory, 100), cudaSuccess);
  make_stream();
  make_event();
  EXPECT_EQ(held(), (Held{.allocations = 1, .bytes = 100, .pinned = 1, .streams = 1, .events = 1}));
}

TEST_F(RuntimeTest, DescribesTheMachineThatIsSet) {
  reset({.num_devices = 2, .compute_major = 8, .compute_minor = 6, .total_bytes = 123456});
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 2);
  cudaDeviceProp properties{};
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 1), cudaSuccess);
  EXPECT_STREQ(properties.name, "emulated");
  EXPECT_EQ(properties.major * 10 + properties.minor, 86);
  EXPECT_EQ(properties.totalGlobalMem, 123456U);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  reset({.num_devices = 0});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  reset({.driver_version = 0});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
}

}  // namespace
}  // namespace cuda_emulation::testing
