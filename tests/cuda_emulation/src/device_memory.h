#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

namespace cuda_emulation {

/// The memory of the emulated cards: pages of this process that nothing can touch while no work of
/// a card runs, so that host code that reads a device pointer faults as it would without a GPU.
/// Every allocation ends at a page that is never mapped; freed pages are not used again soon.
class DeviceMemory {
 public:
  struct Allocation {
    std::byte* data = nullptr;
    std::size_t bytes = 0;  ///< as asked for
    std::byte* pages = nullptr;
    std::size_t page_bytes = 0;  ///< without the guard page
    int ordinal = 0;
  };

  DeviceMemory() = default;
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// Null when the process has no address space left.
  void* allocate(std::size_t bytes, int ordinal);
  /// False when `data` is not the start of an allocation.
  bool free(void* data);
  void free_all();

  /// The allocation that [data, data + bytes) lies in.
  [[nodiscard]] const Allocation* find(const void* data, std::size_t bytes = 1) const;
  [[nodiscard]] std::size_t count() const { return allocations_.size(); }
  [[nodiscard]] std::size_t bytes_in_use(int ordinal) const;

  /// Work may touch the memory between open() and close().
  void open();
  void close();
  /// Names an allocation whose bytes behind its end were written (between the end asked for and
  /// the guard page); only while open.
  [[nodiscard]] std::optional<std::string> overrun() const;
  /// True when the address belongs to the cards: allocated, freed or a guard page.
  [[nodiscard]] bool owns(const void* address) const;

 private:
  struct Range {
    std::byte* begin;
    std::size_t bytes;
  };
  std::map<std::uintptr_t, Allocation> allocations_;  // by data
  std::deque<Range> freed_;
};

}  // namespace cuda_emulation
