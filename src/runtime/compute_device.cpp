#include "runtime/compute_device.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <utility>

#include "core/build_config.h"
#include "runtime/cuda_compute_device.h"

namespace miniacc {
namespace {

constexpr std::string_view kCudaPrefix = "cuda:";
constexpr const char* kNoCuda =
    "this build has no CUDA: build the preset cuda for it, or run on the CPU";

Result<ComputeDevice> open_cuda(int ordinal, std::optional<std::size_t> vram_bytes) {
  if constexpr (kHasCuda) {
    return cuda::open_compute_device(ordinal, vram_bytes);
  } else {
    static_cast<void>(ordinal);
    static_cast<void>(vram_bytes);
    return fail(ErrorCode::kUnsupported, kNoCuda);
  }
}

}  // namespace

Result<DeviceChoice> parse_device(const std::string& text) {
  if (text == "auto") {
    return DeviceChoice{DeviceChoice::Kind::kAuto};
  }
  if (text == "cpu") {
    return DeviceChoice{DeviceChoice::Kind::kCpu};
  }
  if (text == "cuda") {
    return DeviceChoice{DeviceChoice::Kind::kCuda};
  }
  if (text.starts_with(kCudaPrefix)) {
    DeviceChoice choice{DeviceChoice::Kind::kCuda};
    const char* begin = text.data() + kCudaPrefix.size();
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(begin, end, choice.ordinal);
    if (error == std::errc() && rest == end && choice.ordinal >= 0) {
      return choice;
    }
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("the device must be auto, cpu, cuda or cuda:N, got '{}'", text));
}

Result<ComputeDevice> open_compute_device(const DeviceChoice& choice,
                                          std::optional<std::size_t> vram_bytes) {
  switch (choice.kind) {
    case DeviceChoice::Kind::kCuda:
      return open_cuda(choice.ordinal, vram_bytes);
    case DeviceChoice::Kind::kCpu:
      if (vram_bytes) {
        return fail(ErrorCode::kInvalidArgument,
                    "a limit of device memory (--vram) goes with a CUDA device, not with the CPU");
      }
      return ComputeDevice{};
    case DeviceChoice::Kind::kAuto:
      break;
  }
  if (!kHasCuda) {
    ComputeDevice host;
    host.note =
        vram_bytes ? "this build has no CUDA: the limit of device memory has no effect" : "";
    return host;
  }
  auto device = open_cuda(0, vram_bytes);
  if (!device) {
    ComputeDevice host;
    host.note = fmt::format("computing on the CPU: {}", device.error().message);
    return host;
  }
  return device;
}

std::unique_ptr<Device> make_pinned_host() {
  if constexpr (kHasCuda) {
    return cuda::make_pinned_host();
  } else {
    return nullptr;
  }
}

Result<std::vector<DeviceReport>> report_devices() {
  if constexpr (kHasCuda) {
    return cuda::report_devices();
  } else {
    return fail(ErrorCode::kUnsupported, kNoCuda);
  }
}

}  // namespace miniacc
