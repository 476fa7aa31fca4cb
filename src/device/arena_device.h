#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "device/device.h"

namespace miniacc {

/// Memory of another device for work in one stream's order: pieces of a few large regions, which
/// are kept and handed out again. Neither taking nor giving back waits for the device or calls the
/// driver, once the regions are there.
///
/// A piece that was given back is handed out at once, while work that uses it may still be under
/// way: right only because what uses it next stands behind that work in the same stream.
class ArenaDevice final : public Device {
 public:
  /// `memory` outlives the object.
  explicit ArenaDevice(Device& memory) : memory_(memory) {}

  [[nodiscard]] DeviceId id() const override { return memory_.id(); }
  /// 256-byte aligned where the other device's memory is. Takes a new region where no free piece
  /// suffices; kOutOfMemory is the other device's, once regions without use were given back.
  [[nodiscard]] Result<Buffer> allocate(std::size_t bytes) override;
  void deallocate(void* data, std::size_t bytes) noexcept override;
  /// Of pieces in use, not of regions.
  [[nodiscard]] std::size_t bytes_in_use() const override;
  [[nodiscard]] std::size_t peak_bytes() const override;

  /// One region with `bytes` free, beside what is in use, so that pieces up to that sum need no
  /// other; regions without use are given back first. kOutOfMemory of the other device.
  [[nodiscard]] Status reserve(std::size_t bytes);
  /// Gives regions without use back.
  void trim();
  [[nodiscard]] std::size_t region_bytes() const;
  /// Starts peak_bytes() anew.
  void reset_peak();

 private:
  struct Region {
    Buffer buffer;
    std::map<std::size_t, std::size_t> free;  ///< offset → bytes, never adjacent
  };
  [[nodiscard]] Status add_region(std::size_t bytes);
  [[nodiscard]] void* take(std::size_t bytes);
  void trim_locked();

  Device& memory_;
  mutable std::mutex mutex_;
  std::map<std::uintptr_t, Region> regions_;  ///< by address
  std::size_t in_use_ = 0;
  std::size_t peak_ = 0;
};

}  // namespace miniacc
