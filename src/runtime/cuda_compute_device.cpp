#include "runtime/cuda_compute_device.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "device/cuda_device.h"
#include "device/device_error.h"

namespace miniacc::cuda {

Result<ComputeDevice> open_compute_device(int ordinal, std::optional<std::size_t> vram_bytes) {
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  try {
    MINIACC_ASSIGN(auto device, CudaDevice::open(ordinal, {.ceiling_bytes = vram_bytes}));
    ComputeDevice result;
    result.ceiling_bytes = device->ceiling_bytes();
    result.note = fmt::format(
        "computing on CUDA device {} ({}, compute capability {}.{}) with at most {:.2f} of {:.2f} "
        "GiB",
        ordinal, device->info().name, device->info().compute_major, device->info().compute_minor,
        static_cast<double>(result.ceiling_bytes) / kGiB,
        static_cast<double>(device->info().total_bytes) / kGiB);
    result.model = fmt::format("{} {}.{}", device->info().name, device->info().compute_major,
                               device->info().compute_minor);
    result.card = std::move(device);
    // What is freed is used again at once, so all work on it is in one order: also the copies of
    // code that names no stream.
    auto arena = std::make_unique<ArenaDevice>(*result.card);
    result.arena = arena.get();
    result.device = std::move(arena);
    result.pinned = std::make_unique<CudaPinnedHost>(std::numeric_limits<std::size_t>::max());
    result.stream = {make_stream(ordinal, StreamOrder::kWithDefault).release(),
                     [](CUstream_st* stream) { StreamDestroy{}(stream); }};
    return result;
  } catch (const DeviceError& error) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("CUDA device {} cannot be opened: {}; run on the CPU instead", ordinal,
                            error.what()));
  }
}

std::unique_ptr<Device> make_pinned_host() {
  return std::make_unique<CudaPinnedHost>(std::numeric_limits<std::size_t>::max());
}

Result<std::vector<DeviceReport>> report_devices() {
  MINIACC_ASSIGN(const std::vector<CudaDeviceInfo> devices, list_cuda_devices());
  std::vector<DeviceReport> reports;
  for (const CudaDeviceInfo& info : devices) {
    DeviceReport report{.ordinal = info.ordinal,
                        .name = info.name,
                        .compute_major = info.compute_major,
                        .compute_minor = info.compute_minor,
                        .total_bytes = info.total_bytes};
    CudaDeviceOptions all;
    all.headroom_bytes = 0;
    try {
      if (const auto device = CudaDevice::open(info.ordinal, all)) {
        report.free_bytes = (*device)->ceiling_bytes();
      } else {
        report.trouble = device.error().message;
      }
    } catch (const DeviceError& error) {
      report.trouble = error.what();
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace miniacc::cuda
