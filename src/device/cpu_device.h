#pragma once

#include <limits>

#include "device/device.h"
#include "device/memory_ceiling.h"

namespace miniacc {

/// Host memory with a ceiling on what it hands out.
class CpuDevice final : public Device {
 public:
  explicit CpuDevice(std::size_t ceiling_bytes = std::numeric_limits<std::size_t>::max());

  [[nodiscard]] DeviceId id() const override { return {}; }
  [[nodiscard]] Result<Buffer> allocate(std::size_t bytes) override;
  void deallocate(void* data, std::size_t bytes) noexcept override;
  [[nodiscard]] std::size_t bytes_in_use() const override { return ceiling_.in_use(); }
  [[nodiscard]] std::size_t peak_bytes() const override { return ceiling_.peak(); }

 private:
  MemoryCeiling ceiling_;
};

}  // namespace miniacc
