#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "cuda_emulation/emulation.h"
#include "cuda_runtime.h"

namespace cuda_emulation::testing {

/// Starts every test on a fresh machine and restores the schedule behind it.
class EmulationTest : public ::testing::Test {
 protected:
  void SetUp() override { reset(); }
  void TearDown() override {
    set_schedule(schedule_);
    reset();
  }

 private:
  Schedule schedule_ = schedule();
};

/// Device memory of a test; freed by the reset behind it.
template <typename T>
T* device_array(const std::vector<T>& values) {
  T* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, values.size() * sizeof(T)), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
            cudaSuccess);
  return data;
}

template <typename T>
std::vector<T> host_values(const T* data, std::size_t size) {
  std::vector<T> values(size);
  EXPECT_EQ(cudaMemcpy(values.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
  return values;
}

template <typename... Parameters, typename... Arguments>
cudaError_t start(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
                  cudaStream_t stream, Arguments... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

/// Launches and waits; the first error of the two.
template <typename... Parameters, typename... Arguments>
cudaError_t run(void (*kernel)(Parameters...), dim3 grid, dim3 block, Arguments... arguments) {
  const cudaError_t error = start(kernel, grid, block, 0, nullptr, arguments...);
  return error != cudaSuccess ? error : cudaDeviceSynchronize();
}

}  // namespace cuda_emulation::testing
