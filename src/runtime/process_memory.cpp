#include "runtime/process_memory.h"

#include <fstream>
#include <string>

namespace miniacc {
namespace {

/// A line such as "VmHWM:    123456 kB" of /proc/self/status.
std::size_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word == key) {
      std::size_t kibibytes = 0;
      return status >> kibibytes ? kibibytes * 1024 : 0;
    }
  }
  return 0;
}

}  // namespace

std::size_t resident_bytes() { return status_bytes("VmRSS:"); }
std::size_t peak_resident_bytes() { return status_bytes("VmHWM:"); }

}  // namespace miniacc
