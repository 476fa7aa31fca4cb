#pragma once

#include <cuda_runtime_api.h>

/// For cuda_*.cpp and .cu files only: it brings CUDA's own header in.
namespace miniacc::cuda {

/// Throws DeviceError("<what>: <CUDA's name and description>") unless `status` is success. An error
/// that does not stick to the context is cleared, so that the next check reports its own call.
void check(cudaError_t status, const char* what);

}  // namespace miniacc::cuda
