#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace miniacc::fuzz {

/// A file in memory with a path, whose content each run replaces: readers that map or stream a file
/// are fuzzed through their public entry without touching a disk.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) {
    if (descriptor_ < 0) {
      std::abort();
    }
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(descriptor_); }

  void set(const std::uint8_t* data, std::size_t size) const {
    if (ftruncate(descriptor_, 0) != 0 ||
        pwrite(descriptor_, data, size, 0) != static_cast<ssize_t>(size)) {
      std::abort();
    }
  }
  [[nodiscard]] std::filesystem::path path() const {
    return "/proc/self/fd/" + std::to_string(descriptor_);
  }

 private:
  int descriptor_;
};

/// What a parser promised and did not keep ends the run, so that libFuzzer keeps the input.
inline void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

}  // namespace miniacc::fuzz
