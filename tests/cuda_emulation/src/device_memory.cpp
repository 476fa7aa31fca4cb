#include "device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <sstream>

namespace cuda_emulation {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kAlignment = 256;  // cudaMalloc's
constexpr std::size_t kKeptFreed = 512;  // ranges
constexpr unsigned char kFresh = 0xFF;   // NaN: memory that was never written shows

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

DeviceMemory::~DeviceMemory() { free_all(); }

void* DeviceMemory::allocate(std::size_t bytes, int ordinal) {
  const std::size_t used = round_up(bytes, kAlignment);
  const std::size_t page_bytes = round_up(used, kPage);
  void* memory = mmap(nullptr, page_bytes + kPage, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return nullptr;
  }
  auto* pages = static_cast<std::byte*>(memory);
  const Allocation allocation{pages + page_bytes - used, bytes, pages, page_bytes, ordinal};
  mprotect(pages, page_bytes, PROT_READ | PROT_WRITE);
  std::memset(pages, kFresh, page_bytes);
  mprotect(pages, page_bytes, PROT_NONE);
  allocations_.emplace(reinterpret_cast<std::uintptr_t>(allocation.data), allocation);
  return allocation.data;
}

bool DeviceMemory::free(void* data) {
  const auto found = allocations_.find(reinterpret_cast<std::uintptr_t>(data));
  if (found == allocations_.end()) {
    return false;
  }
  const Allocation& gone = found->second;
  // The pages are given back, the addresses kept for a while: a use after the free faults.
  mmap(gone.pages, gone.page_bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  freed_.push_back({gone.pages, gone.page_bytes + kPage});
  allocations_.erase(found);
  if (freed_.size() > kKeptFreed) {
    munmap(freed_.front().begin, freed_.front().bytes);
    freed_.pop_front();
  }
  return true;
}

void DeviceMemory::free_all() {
  while (!allocations_.empty()) {
    free(allocations_.begin()->second.data);
  }
  for (const Range& range : freed_) {
    munmap(range.begin, range.bytes);
  }
  freed_.clear();
}

const DeviceMemory::Allocation* DeviceMemory::find(const void* data, std::size_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) {
    return nullptr;
  }
  const Allocation& found = std::prev(next)->second;
  const std::uintptr_t offset = address - reinterpret_cast<std::uintptr_t>(found.data);
  return offset <= found.bytes && bytes <= found.bytes - offset ? &found : nullptr;
}

std::size_t DeviceMemory::bytes_in_use(int ordinal) const {
  std::size_t sum = 0;
  for (const auto& [address, allocation] : allocations_) {
    sum += allocation.ordinal == ordinal ? allocation.bytes : 0;
  }
  return sum;
}

void DeviceMemory::open() {
  for (const auto& [address, allocation] : allocations_) {
    mprotect(allocation.pages, allocation.page_bytes, PROT_READ | PROT_WRITE);
  }
}

void DeviceMemory::close() {
  for (const auto& [address, allocation] : allocations_) {
    mprotect(allocation.pages, allocation.page_bytes, PROT_NONE);
  }
}

std::optional<std::string> DeviceMemory::overrun() const {
  const auto fresh = [](std::byte byte) { return byte == std::byte{kFresh}; };
  for (const auto& [address, allocation] : allocations_) {
    std::byte* end = allocation.pages + allocation.page_bytes;
    const auto in_front = std::min<std::ptrdiff_t>(allocation.data - allocation.pages, kAlignment);
    const bool before = !std::all_of(allocation.data - in_front, allocation.data, fresh);
    const bool behind = !std::all_of(allocation.data + allocation.bytes, end, fresh);
    if (before || behind) {
      std::ostringstream text;
      text << "written " << (before ? "before" : "behind") << " an allocation of "
           << allocation.bytes << " bytes";
      return text.str();
    }
  }
  return std::nullopt;
}

bool DeviceMemory::owns(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  const auto inside = [at](const std::byte* begin, std::size_t bytes) {
    return at >= begin && at < begin + bytes;
  };
  return std::any_of(allocations_.begin(), allocations_.end(),
                     [&](const auto& entry) {
                       return inside(entry.second.pages, entry.second.page_bytes + kPage);
                     }) ||
         std::any_of(freed_.begin(), freed_.end(),
                     [&](const Range& range) { return inside(range.begin, range.bytes); });
}

}  // namespace cuda_emulation
