#include "device/cuda_check.h"
#include "device/cuda_image.h"

namespace miniacc::cuda {
namespace {

// Asked for its attributes, never launched.
__global__ void image_probe() {}

}  // namespace

bool has_code_for_current_device() {
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, image_probe);
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  check(status, "cudaFuncGetAttributes");
  return true;
}

}  // namespace miniacc::cuda
