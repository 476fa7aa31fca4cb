#include "device/memory_ceiling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>

namespace miniacc {

Result<std::size_t> MemoryCeiling::rounded_size(std::size_t bytes, std::size_t alignment) const {
  // No object may be larger than pointer differences can express.
  if (bytes > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) - alignment) {
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("{} buffer larger than the address space", what_));
  }
  return std::max(alignment, (bytes + alignment - 1) / alignment * alignment);
}

Result<std::size_t> MemoryCeiling::reserve(std::size_t bytes) {
  std::size_t before = in_use_.load();
  do {
    if (bytes > ceiling_bytes_ || before > ceiling_bytes_ - bytes) {
      return fail(ErrorCode::kOutOfMemory,
                  fmt::format("{} buffer of {} bytes does not fit: {} of {} bytes are in use",
                              what_, bytes, before, ceiling_bytes_));
    }
  } while (!in_use_.compare_exchange_weak(before, before + bytes));
  return before + bytes;
}

void MemoryCeiling::confirm(std::size_t sum) noexcept {
  std::size_t peak = peak_.load();
  while (peak < sum && !peak_.compare_exchange_weak(peak, sum)) {
  }
}

}  // namespace miniacc
