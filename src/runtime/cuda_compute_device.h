#pragma once

#include "runtime/compute_device.h"

/// The part of compute_device.h that only builds with CUDA have.
namespace miniacc::cuda {

[[nodiscard]] Result<ComputeDevice> open_compute_device(int ordinal,
                                                        std::optional<std::size_t> vram_bytes);
[[nodiscard]] std::unique_ptr<Device> make_pinned_host();
[[nodiscard]] Result<std::vector<DeviceReport>> report_devices();

}  // namespace miniacc::cuda
