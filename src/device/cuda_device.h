#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/cuda_handles.h"
#include "device/device.h"
#include "device/memory_ceiling.h"

namespace miniacc {

/// A card as the driver describes it.
struct CudaDeviceInfo {
  int ordinal = 0;  ///< counts the visible devices
  std::string name = {};
  int compute_major = 0;
  int compute_minor = 0;
  std::size_t total_bytes = 0;
};

/// The machine's CUDA devices, old ones included, without touching their memory. kUnsupported, with
/// the reason the driver gives, where there is no driver, no device or a driver too old.
[[nodiscard]] Result<std::vector<CudaDeviceInfo>> list_cuda_devices();

/// kUnsupported for a card older than compute capability 8.0: kernels are built for 8.0 and newer.
[[nodiscard]] Status require_supported(const CudaDeviceInfo& info);

struct CudaDeviceOptions {
  /// The most bytes to hand out; empty: what is free at opening, less headroom_bytes.
  std::optional<std::size_t> ceiling_bytes = {};
  /// Left for what does not go through this device: modules, libraries' workspaces, other programs.
  std::size_t headroom_bytes = std::size_t{512} << 20;
};

/// Memory of one CUDA device under a hard ceiling. The ceiling counts the bytes handed out, in
/// steps of 256; the driver maps whole pages (2 MiB) for them, and the CUDA context itself comes on
/// top.
///
/// Freeing waits for the device's work (cudaFree does): a buffer may be given back while a kernel
/// still uses it, but nothing that repeats per step should allocate.
class CudaDevice final : public Device {
 public:
  /// Errors, each naming what was found: kUnsupported (no driver, no device, older than 8.0, no
  /// code for this card in this build), kInvalidArgument (no such ordinal), kOutOfMemory (less free
  /// than the headroom).
  [[nodiscard]] static Result<std::unique_ptr<CudaDevice>> open(
      int ordinal, const CudaDeviceOptions& options = {});

  /// For open(), which has checked that the device is there and supported.
  CudaDevice(CudaDeviceInfo info, std::size_t ceiling_bytes);

  [[nodiscard]] DeviceId id() const override { return {DeviceKind::kCuda, info_.ordinal}; }
  [[nodiscard]] const CudaDeviceInfo& info() const { return info_; }
  [[nodiscard]] std::size_t ceiling_bytes() const { return ceiling_.ceiling_bytes(); }

  /// 256-byte aligned. Throws DeviceError where the driver fails for another reason than memory.
  [[nodiscard]] Result<Buffer> allocate(std::size_t bytes) override;
  void deallocate(void* data, std::size_t bytes) noexcept override;
  [[nodiscard]] std::size_t bytes_in_use() const override { return ceiling_.in_use(); }
  [[nodiscard]] std::size_t peak_bytes() const override { return ceiling_.peak(); }

 private:
  CudaDeviceInfo info_;
  MemoryCeiling ceiling_;
};

/// Host memory that the driver has pinned: copies to and from a device run beside the host and at
/// the bus's full speed. Tensors made on it are ordinary CPU tensors. Pinned pages cannot be
/// swapped out, so the ceiling must be chosen with the machine's memory in mind.
class CudaPinnedHost final : public Device {
 public:
  explicit CudaPinnedHost(std::size_t ceiling_bytes);

  [[nodiscard]] DeviceId id() const override { return {}; }
  /// Page-aligned. Throws DeviceError where the driver fails for another reason than memory.
  [[nodiscard]] Result<Buffer> allocate(std::size_t bytes) override;
  void deallocate(void* data, std::size_t bytes) noexcept override;
  [[nodiscard]] std::size_t bytes_in_use() const override { return ceiling_.in_use(); }
  [[nodiscard]] std::size_t peak_bytes() const override { return ceiling_.peak(); }

 private:
  MemoryCeiling ceiling_;
};

namespace cuda {

/// to = from, in `stream`'s order, between host and device, or inside one device.
///   to, from  contiguous, of one shape and dtype; at least one on a CUDA device
/// Returns before the copy is done where the host side is pinned; both stay untouched until the
/// stream gets there. From pageable memory the driver stages and may keep the host waiting. Throws
/// InternalError on a broken contract, DeviceError when the driver refuses.
void copy_async(TensorView to, ConstTensorView from, CUstream_st* stream);

}  // namespace cuda

}  // namespace miniacc
