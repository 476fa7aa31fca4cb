#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/arena_device.h"
#include "device/device.h"

struct CUstream_st;

namespace miniacc {

/// Where a job computes, as users say it: "auto", "cpu", "cuda" (the first device) or "cuda:N".
struct DeviceChoice {
  enum class Kind { kAuto, kCpu, kCuda };
  Kind kind = Kind::kAuto;
  int ordinal = 0;
};
/// kInvalidArgument names the forms.
[[nodiscard]] Result<DeviceChoice> parse_device(const std::string& text);

/// The device of a job and its stream.
struct ComputeDevice {
  std::unique_ptr<Device> card;    ///< memory under the ceiling; null: the host computes
  std::unique_ptr<Device> pinned;  ///< host memory that the card copies from; null like card
  std::unique_ptr<Device> device;  ///< the card's memory for work on `stream`; null like card
  ArenaDevice* arena = nullptr;    ///< `device` as what it is
  std::unique_ptr<CUstream_st, void (*)(CUstream_st*)> stream{nullptr, [](CUstream_st*) {}};
  std::size_t ceiling_bytes = 0;  ///< of device memory
  std::string model;              ///< "NVIDIA H200 9.0": what decides the bits of its results
  std::string note;               ///< what was chosen, or why not the GPU; empty: nothing to say
};

/// kAuto takes the first CUDA device that can be used, or else the host, and says why. Errors:
/// kUnsupported (no CUDA in this build, no driver, no device, too old), kInvalidArgument (no such
/// ordinal; a ceiling without a CUDA device), kOutOfMemory (less free than the headroom).
///   vram_bytes  the most bytes of device memory the job may hold; empty: what is free, less a
///               headroom of 512 MiB
[[nodiscard]] Result<ComputeDevice> open_compute_device(const DeviceChoice& choice,
                                                        std::optional<std::size_t> vram_bytes);

/// Host memory that copies to and from a CUDA device take at the bus's full speed; null in a build
/// without CUDA.
[[nodiscard]] std::unique_ptr<Device> make_pinned_host();

/// One CUDA device of this machine as `miniacc doctor` shows it.
struct DeviceReport {
  int ordinal = 0;
  std::string name = {};
  int compute_major = 0;
  int compute_minor = 0;
  std::size_t total_bytes = 0;
  std::size_t free_bytes = 0;  ///< 0 where it is not usable
  std::string trouble = {};    ///< why it cannot be used; empty: it can
};
/// kUnsupported with the reason where there is none or this build has no CUDA.
[[nodiscard]] Result<std::vector<DeviceReport>> report_devices();

}  // namespace miniacc
