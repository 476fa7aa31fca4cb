#include "device/arena_device.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace miniacc {
namespace {

constexpr std::size_t kAlignment = 256;
/// Small pieces share regions of this size.
constexpr std::size_t kRegionBytes = std::size_t{16} << 20;

std::size_t rounded(std::size_t bytes) {
  const std::size_t most = std::numeric_limits<std::size_t>::max() - kAlignment;
  return (std::clamp<std::size_t>(bytes, 1, most) + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Result<Buffer> ArenaDevice::allocate(std::size_t bytes) {
  const std::size_t size = rounded(bytes);
  const std::scoped_lock lock(mutex_);
  void* data = take(size);
  if (data == nullptr) {
    if (size >= kRegionBytes || !add_region(kRegionBytes)) {
      if (!add_region(size)) {
        trim_locked();
        MINIACC_RETURN_IF_ERROR(add_region(size));
      }
    }
    data = take(size);
  }
  in_use_ += size;
  peak_ = std::max(peak_, in_use_);
  return Buffer(data, size, *this);
}

void* ArenaDevice::take(std::size_t bytes) {
  // The tightest piece: large ones stay whole.
  Region* best = nullptr;
  std::map<std::size_t, std::size_t>::iterator place;
  for (auto& [address, region] : regions_) {
    for (auto it = region.free.begin(); it != region.free.end(); ++it) {
      if (it->second >= bytes && (best == nullptr || it->second < place->second)) {
        best = &region;
        place = it;
      }
    }
  }
  if (best == nullptr) {
    return nullptr;
  }
  const auto [offset, size] = *place;
  best->free.erase(place);
  if (size > bytes) {
    best->free.emplace(offset + bytes, size - bytes);
  }
  return static_cast<std::byte*>(best->buffer.data()) + offset;
}

void ArenaDevice::deallocate(void* data, std::size_t bytes) noexcept {
  const std::scoped_lock lock(mutex_);
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  auto region = std::prev(regions_.upper_bound(address));
  std::map<std::size_t, std::size_t>& free = region->second.free;
  const std::size_t offset = address - region->first;
  auto next = free.lower_bound(offset);
  std::size_t begin = offset;
  std::size_t end = offset + bytes;
  if (next != free.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      begin = before->first;
      free.erase(before);
    }
  }
  if (next != free.end() && next->first == end) {
    end += next->second;
    free.erase(next);
  }
  free.emplace(begin, end - begin);
  in_use_ -= bytes;
}

Status ArenaDevice::add_region(std::size_t bytes) {
  MINIACC_ASSIGN(Buffer buffer, memory_.allocate(bytes));
  const auto address = reinterpret_cast<std::uintptr_t>(buffer.data());
  Region region{std::move(buffer), {}};
  region.free.emplace(0, rounded(bytes));
  regions_.emplace(address, std::move(region));
  return {};
}

Status ArenaDevice::reserve(std::size_t bytes) {
  const std::size_t size = rounded(bytes);
  const std::scoped_lock lock(mutex_);
  for (const auto& [address, region] : regions_) {
    for (const auto& [offset, free] : region.free) {
      if (free >= size) {
        return {};
      }
    }
  }
  trim_locked();
  return add_region(size);
}

void ArenaDevice::trim() {
  const std::scoped_lock lock(mutex_);
  trim_locked();
}

void ArenaDevice::trim_locked() {
  std::erase_if(regions_, [](const auto& entry) {
    const Region& region = entry.second;
    return region.free.size() == 1 &&
           region.free.begin()->second >= region.buffer.size_bytes() / kAlignment * kAlignment &&
           region.free.begin()->first == 0;
  });
}

std::size_t ArenaDevice::region_bytes() const {
  const std::scoped_lock lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& [address, region] : regions_) {
    bytes += region.buffer.size_bytes();
  }
  return bytes;
}

std::size_t ArenaDevice::bytes_in_use() const {
  const std::scoped_lock lock(mutex_);
  return in_use_;
}

std::size_t ArenaDevice::peak_bytes() const {
  const std::scoped_lock lock(mutex_);
  return peak_;
}

void ArenaDevice::reset_peak() {
  const std::scoped_lock lock(mutex_);
  peak_ = in_use_;
}

}  // namespace miniacc
