#include "device/cpu_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <limits>

namespace miniacc {
namespace {
constexpr std::size_t kAlignment = 64;  // one cache line, one AVX-512 register

std::size_t aligned_size(std::size_t bytes) {
  return std::max<std::size_t>(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
}
}  // namespace

CpuDevice::CpuDevice(std::size_t ceiling_bytes) : ceiling_bytes_(ceiling_bytes) {}

Result<Buffer> CpuDevice::allocate(std::size_t bytes) {
  // No object may be larger than pointer differences can express.
  if (bytes > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) - kAlignment) {
    return fail(ErrorCode::kOutOfMemory, "host buffer larger than the address space");
  }
  const std::size_t size = aligned_size(bytes);
  // Reserve first, so that two threads cannot both pass the check and break the ceiling.
  std::size_t before = in_use_.load();
  do {
    if (size > ceiling_bytes_ || before > ceiling_bytes_ - size) {
      return fail(ErrorCode::kOutOfMemory,
                  fmt::format("host buffer of {} bytes does not fit: {} of {} bytes are in use",
                              size, before, ceiling_bytes_));
    }
  } while (!in_use_.compare_exchange_weak(before, before + size));
  void* data = std::aligned_alloc(kAlignment, size);
  if (data == nullptr) {
    in_use_ -= size;
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("the system has no {} bytes of memory to give", size));
  }
  const std::size_t now = before + size;
  std::size_t peak = peak_.load();
  while (peak < now && !peak_.compare_exchange_weak(peak, now)) {
  }
  return Buffer(data, size, *this);
}

void CpuDevice::deallocate(void* data, std::size_t bytes) noexcept {
  std::free(data);  // NOLINT(cppcoreguidelines-no-malloc): pairs with aligned_alloc
  in_use_ -= bytes;
}

}  // namespace miniacc
