#pragma once

#include <cstddef>

namespace miniacc {

/// The 6-bit scale and minimum of one 32-value part of a q4_k or q5_k block. Private to the io
/// layer.
struct ScaleAndMin {
  int scale = 0;
  int minimum = 0;
};

/// The 12 bytes hold, for parts 0..3, scales in the low 6 bits of bytes 0..3 and minima in the low
/// 6 bits of bytes 4..7; for parts 4..7, the low 4 bits of scale and minimum as low and high nibble
/// of bytes 8..11 and their upper 2 bits as the top of bytes part-4 and part.
inline ScaleAndMin unpack_scale_and_min(const std::byte* packed, int part) {
  const auto at = [&](int index) { return std::to_integer<int>(packed[index]); };
  if (part < 4) {
    return {at(part) & 0x3F, at(part + 4) & 0x3F};
  }
  return {(at(part + 4) & 0xF) | ((at(part - 4) >> 6) << 4),
          (at(part + 4) >> 4) | ((at(part) >> 6) << 4)};
}

/// The inverse; the 12 bytes are zero before the first part is packed.
inline void pack_scale_and_min(ScaleAndMin value, int part, std::byte* packed) {
  const auto add = [&](int index, int bits) { packed[index] |= static_cast<std::byte>(bits); };
  if (part < 4) {
    add(part, value.scale);
    add(part + 4, value.minimum);
    return;
  }
  add(part + 4, (value.scale & 0xF) | ((value.minimum & 0xF) << 4));
  add(part - 4, (value.scale >> 4) << 6);
  add(part, (value.minimum >> 4) << 6);
}

}  // namespace miniacc
