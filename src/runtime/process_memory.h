#pragma once

#include <cstddef>

namespace miniacc {

/// Resident memory of this process in bytes, now and at its highest so far; 0 where the system does
/// not tell (no /proc).
std::size_t resident_bytes();
std::size_t peak_resident_bytes();

}  // namespace miniacc
