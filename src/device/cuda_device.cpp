#include "device/cuda_device.h"

#include <fmt/format.h>

#include <utility>

#include "device/cuda_check.h"
#include "device/cuda_image.h"

namespace miniacc {
namespace {

constexpr std::size_t kAlignment = 256;  // what cudaMalloc guarantees
constexpr std::size_t kHostAlignment = 64;
constexpr int kOldestMajor = 8;  // Ampere: bf16, cp.async, warp reductions of integers

/// A call that failed because there is no memory: an answer, and the context stays usable.
bool out_of_memory(cudaError_t status) {
  if (status != cudaErrorMemoryAllocation) {
    return false;
  }
  static_cast<void>(cudaGetLastError());
  return true;
}

std::string version_name(int version) {  // 13000 is 13.0
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// Why cudaGetDeviceCount failed, in words for someone who never heard of a runtime version.
std::string trouble_with_driver(cudaError_t status) {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return "no NVIDIA driver is installed";
  }
  if (status == cudaErrorInsufficientDriver) {
    return fmt::format("the NVIDIA driver supports CUDA up to {}, wanted {}", version_name(driver),
                       version_name(CUDART_VERSION));
  }
  return fmt::format("the NVIDIA driver says '{}'", cudaGetErrorString(status));
}

Result<int> count_devices() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) {
    return count;
  }
  static_cast<void>(cudaGetLastError());
  return fail(ErrorCode::kUnsupported,
              fmt::format("no usable CUDA device: {}; run on the CPU instead",
                          status == cudaSuccess ? "the NVIDIA driver lists none"
                                                : trouble_with_driver(status)));
}

CudaDeviceInfo describe(int ordinal) {
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  return {.ordinal = ordinal,
          .name = properties.name,
          .compute_major = properties.major,
          .compute_minor = properties.minor,
          .total_bytes = properties.totalGlobalMem};
}

}  // namespace

Result<std::vector<CudaDeviceInfo>> list_cuda_devices() {
  MINIACC_ASSIGN(const int count, count_devices());
  std::vector<CudaDeviceInfo> devices;
  devices.reserve(static_cast<std::size_t>(count));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    devices.push_back(describe(ordinal));
  }
  return devices;
}

Status require_supported(const CudaDeviceInfo& info) {
  if (info.compute_major < kOldestMajor) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("CUDA device {} ({}) has compute capability {}.{}, wanted {}.0 or "
                    "newer; run on the CPU instead",
                    info.ordinal, info.name, info.compute_major, info.compute_minor, kOldestMajor));
  }
  return {};
}

Result<std::unique_ptr<CudaDevice>> CudaDevice::open(int ordinal,
                                                     const CudaDeviceOptions& options) {
  MINIACC_ASSIGN(const int count, count_devices());
  if (ordinal < 0 || ordinal >= count) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("CUDA device {} does not exist: this machine has {}, counted from 0",
                            ordinal, count));
  }
  CudaDeviceInfo info = describe(ordinal);
  MINIACC_RETURN_IF_ERROR(require_supported(info));
  const cuda::DeviceScope scope(ordinal);
  if (!cuda::has_code_for_current_device()) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("this build holds no code for CUDA device {} ({}, compute capability "
                            "{}.{}); build the preset cuda-dist or run on the CPU instead",
                            ordinal, info.name, info.compute_major, info.compute_minor));
  }
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  cuda::check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  if (!options.ceiling_bytes && free_bytes <= options.headroom_bytes) {
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("CUDA device {} ({}) has {} of {} bytes free, wanted more than the "
                            "headroom of {}",
                            ordinal, info.name, free_bytes, total_bytes, options.headroom_bytes));
  }
  const std::size_t ceiling =
      options.ceiling_bytes ? *options.ceiling_bytes : free_bytes - options.headroom_bytes;
  return std::make_unique<CudaDevice>(std::move(info), ceiling);
}

CudaDevice::CudaDevice(CudaDeviceInfo info, std::size_t ceiling_bytes)
    : info_(std::move(info)),
      ceiling_(fmt::format("CUDA device {}", info_.ordinal), ceiling_bytes) {}

Result<Buffer> CudaDevice::allocate(std::size_t bytes) {
  MINIACC_ASSIGN(const std::size_t size, ceiling_.rounded_size(bytes, kAlignment));
  MINIACC_ASSIGN(const std::size_t sum, ceiling_.reserve(size));
  const cuda::DeviceScope scope(info_.ordinal);
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, size);
  if (status != cudaSuccess) {
    ceiling_.release(size);
    if (!out_of_memory(status)) {
      cuda::check(status, "cudaMalloc");
    }
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("{} has no {} bytes of memory to give: {} of {} bytes are in use here, "
                            "other programs may hold the rest",
                            ceiling_.what(), size, sum - size, ceiling_.ceiling_bytes()));
  }
  ceiling_.confirm(sum);
  return Buffer(data, size, *this);
}

void CudaDevice::deallocate(void* data, std::size_t bytes) noexcept {
  // The address names its device. A failure here is one of earlier work, and sticks to the context:
  // the next checked call reports it.
  static_cast<void>(cudaFree(data));
  ceiling_.release(bytes);
}

CudaPinnedHost::CudaPinnedHost(std::size_t ceiling_bytes)
    : ceiling_("pinned host", ceiling_bytes) {}

Result<Buffer> CudaPinnedHost::allocate(std::size_t bytes) {
  MINIACC_ASSIGN(const std::size_t size, ceiling_.rounded_size(bytes, kHostAlignment));
  MINIACC_ASSIGN(const std::size_t sum, ceiling_.reserve(size));
  void* data = nullptr;
  // Portable: pinned for every device, not only the current one.
  const cudaError_t status = cudaHostAlloc(&data, size, cudaHostAllocPortable);
  if (status != cudaSuccess) {
    ceiling_.release(size);
    if (!out_of_memory(status)) {
      cuda::check(status, "cudaHostAlloc");
    }
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("the system has no {} bytes of memory to pin", size));
  }
  ceiling_.confirm(sum);
  return Buffer(data, size, *this);
}

void CudaPinnedHost::deallocate(void* data, std::size_t bytes) noexcept {
  static_cast<void>(cudaFreeHost(data));  // as in CudaDevice::deallocate
  ceiling_.release(bytes);
}

namespace cuda {

void copy_async(TensorView to, ConstTensorView from, CUstream_st* stream) {
  const bool to_device = to.device.kind == DeviceKind::kCuda;
  const bool from_device = from.device.kind == DeviceKind::kCuda;
  MINIACC_REQUIRE(to.shape == from.shape && to.dtype == from.dtype,
                  "copy_async: one shape and one dtype");
  MINIACC_REQUIRE(to.is_contiguous() && from.is_contiguous(), "copy_async: contiguous views");
  MINIACC_REQUIRE(to_device || from_device, "copy_async: one side is a CUDA device");
  MINIACC_REQUIRE(!to_device || !from_device || to.device == from.device,
                  "copy_async: not between devices");
  const auto bytes = storage_bytes(to.dtype, to.num_elements());
  MINIACC_REQUIRE(bytes.has_value(), "copy_async: a view has a size");
  if (*bytes == 0) {
    return;
  }
  const DeviceScope scope(to_device ? to.device.ordinal : from.device.ordinal);
  const cudaMemcpyKind kind = !to_device     ? cudaMemcpyDeviceToHost
                              : !from_device ? cudaMemcpyHostToDevice
                                             : cudaMemcpyDeviceToDevice;
  check(cudaMemcpyAsync(to.data, from.data, *bytes, kind, stream), "cudaMemcpyAsync");
}

}  // namespace cuda

}  // namespace miniacc
