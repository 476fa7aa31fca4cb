#pragma once

#include <cmath>
#include <functional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuda_runtime_api.h"
#include "emulated/device_functions.h"
#include "emulated/vector_types.h"

/// What nvcc knows without an include, as C++: a kernel is a function, __shared__ memory a
/// thread_local variable of the one thread that runs kernels (emulated/block.h).
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ thread_local
#define __grid_constant__

struct cudaLaunchAttribute;
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

namespace cuda_emulation {

struct Launch {
  const void* kernel = nullptr;       ///< address of the function, its identity
  std::string_view signature;         ///< contains its parameter types
  std::function<void()> body;         ///< runs it for one thread
  std::vector<const void*> pointers;  ///< its pointer arguments
  dim3 grid;
  dim3 block;
  std::size_t dynamic_bytes = 0;
};

cudaError_t enqueue_launch(Launch launch, cudaStream_t stream);
cudaError_t function_attributes(cudaFuncAttributes* attributes, const void* kernel);
cudaError_t set_function_attribute(const void* kernel, cudaFuncAttribute attribute, int value);

template <typename T>
void add_pointer(std::vector<const void*>& pointers, const T& argument) {
  if constexpr (std::is_pointer_v<T>) {
    pointers.push_back(argument);
  }
}

template <typename... Parameters>
std::string_view signature_of() {
  return __PRETTY_FUNCTION__;
}

}  // namespace cuda_emulation

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
  cuda_emulation::Launch launch;
  launch.kernel = reinterpret_cast<const void*>(kernel);
  launch.signature = cuda_emulation::signature_of<Parameters...>();
  std::apply(
      [&](const auto&... value) { (cuda_emulation::add_pointer(launch.pointers, value), ...); },
      values);
  launch.body = [kernel, values] { std::apply(kernel, values); };
  launch.grid = config->gridDim;
  launch.block = config->blockDim;
  launch.dynamic_bytes = config->dynamicSmemBytes;
  return cuda_emulation::enqueue_launch(std::move(launch), config->stream);
}

template <typename... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(Parameters...)) {
  return cuda_emulation::function_attributes(attributes, reinterpret_cast<const void*>(kernel));
}

template <typename... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute,
                                 int value) {
  return cuda_emulation::set_function_attribute(reinterpret_cast<const void*>(kernel), attribute,
                                                value);
}

template <typename T>
cudaError_t cudaMalloc(T** data, std::size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(data), bytes);
}
