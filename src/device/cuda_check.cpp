#include "device/cuda_check.h"

#include <fmt/format.h>

#include "device/device_error.h"

namespace miniacc::cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) {
    return;
  }
  static_cast<void>(cudaGetLastError());
  throw DeviceError(
      fmt::format("{}: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status)));
}

}  // namespace miniacc::cuda
