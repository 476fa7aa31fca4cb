#pragma once

#include <atomic>
#include <limits>

#include "device/device.h"

namespace miniacc {

/// Host memory with a ceiling on what it hands out.
class CpuDevice final : public Device {
 public:
  explicit CpuDevice(std::size_t ceiling_bytes = std::numeric_limits<std::size_t>::max());

  [[nodiscard]] DeviceId id() const override { return {}; }
  [[nodiscard]] Result<Buffer> allocate(std::size_t bytes) override;
  void deallocate(void* data, std::size_t bytes) noexcept override;
  [[nodiscard]] std::size_t bytes_in_use() const override { return in_use_.load(); }
  [[nodiscard]] std::size_t peak_bytes() const override { return peak_.load(); }

 private:
  std::size_t ceiling_bytes_;
  std::atomic<std::size_t> in_use_{0};
  std::atomic<std::size_t> peak_{0};
};

}  // namespace miniacc
