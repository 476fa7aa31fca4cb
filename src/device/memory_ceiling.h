#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <utility>

#include "core/error.h"

namespace miniacc {

/// Counts the bytes a device hands out and refuses what would exceed its ceiling. Thread-safe.
///   reserve → allocate → confirm, or release where the allocation fails.
class MemoryCeiling {
 public:
  /// `what` names the memory in messages: "host", "CUDA device 0", ...
  MemoryCeiling(std::string what, std::size_t ceiling_bytes)
      : what_(std::move(what)), ceiling_bytes_(ceiling_bytes) {}

  /// `bytes` rounded up to a multiple of `alignment`, at least one of them; kOutOfMemory where no
  /// object can be that large.
  [[nodiscard]] Result<std::size_t> rounded_size(std::size_t bytes, std::size_t alignment) const;
  /// Takes `bytes` before they are allocated, so that two threads cannot both pass the check.
  /// Returns the bytes in use with them; kOutOfMemory names the request, what is in use and the
  /// ceiling.
  [[nodiscard]] Result<std::size_t> reserve(std::size_t bytes);
  /// The allocation succeeded: the sum that reserve() gave counts for the peak.
  void confirm(std::size_t sum) noexcept;
  void release(std::size_t bytes) noexcept { in_use_ -= bytes; }

  [[nodiscard]] const std::string& what() const { return what_; }
  [[nodiscard]] std::size_t ceiling_bytes() const { return ceiling_bytes_; }
  [[nodiscard]] std::size_t in_use() const { return in_use_.load(); }
  [[nodiscard]] std::size_t peak() const { return peak_.load(); }

 private:
  std::string what_;
  std::size_t ceiling_bytes_;
  std::atomic<std::size_t> in_use_{0};
  std::atomic<std::size_t> peak_{0};
};

}  // namespace miniacc
