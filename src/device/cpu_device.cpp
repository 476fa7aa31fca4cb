#include "device/cpu_device.h"

#include <fmt/format.h>

#include <cstdlib>

namespace miniacc {
namespace {
constexpr std::size_t kAlignment = 64;  // one cache line, one AVX-512 register
}  // namespace

CpuDevice::CpuDevice(std::size_t ceiling_bytes) : ceiling_("host", ceiling_bytes) {}

Result<Buffer> CpuDevice::allocate(std::size_t bytes) {
  MINIACC_ASSIGN(const std::size_t size, ceiling_.rounded_size(bytes, kAlignment));
  MINIACC_ASSIGN(const std::size_t sum, ceiling_.reserve(size));
  void* data = std::aligned_alloc(kAlignment, size);
  if (data == nullptr) {
    ceiling_.release(size);
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("the system has no {} bytes of memory to give", size));
  }
  ceiling_.confirm(sum);
  return Buffer(data, size, *this);
}

void CpuDevice::deallocate(void* data, std::size_t bytes) noexcept {
  std::free(data);  // NOLINT(cppcoreguidelines-no-malloc): pairs with aligned_alloc
  ceiling_.release(bytes);
}

}  // namespace miniacc
