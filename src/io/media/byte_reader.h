#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace miniacc {

using Bytes = std::span<const std::uint8_t>;

inline bool begins_with(Bytes bytes, std::string_view text) {
  return bytes.size() >= text.size() &&
         std::equal(text.begin(), text.end(), bytes.begin(),
                    [](char a, std::uint8_t b) { return static_cast<std::uint8_t>(a) == b; });
}

/// Reads numbers from bytes that may end anywhere. After a read past the end every value is 0 and
/// ok() is false, so that a parser checks once, before it uses what it read. Private to the io
/// layer.
class ByteReader {
 public:
  explicit ByteReader(Bytes bytes, std::endian order = std::endian::big)
      : bytes_(bytes), order_(order) {}

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] std::size_t left() const { return bytes_.size(); }
  [[nodiscard]] Bytes rest() const { return bytes_; }

  std::uint64_t number(std::size_t size) {
    const Bytes part = take(size);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < part.size(); ++i) {
      value = value << 8U | part[order_ == std::endian::big ? i : part.size() - 1 - i];
    }
    return value;
  }
  std::uint8_t u8() { return static_cast<std::uint8_t>(number(1)); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(number(2)); }
  std::uint32_t u24() { return static_cast<std::uint32_t>(number(3)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(number(4)); }

  /// The next `size` bytes; empty and not ok() when there are fewer.
  Bytes take(std::uint64_t size) {
    if (!ok_ || size > bytes_.size()) {
      ok_ = false;
      bytes_ = {};
      return {};
    }
    const Bytes part = bytes_.first(static_cast<std::size_t>(size));
    bytes_ = bytes_.subspan(static_cast<std::size_t>(size));
    return part;
  }
  void skip(std::uint64_t size) { take(size); }

 private:
  Bytes bytes_;
  std::endian order_;
  bool ok_ = true;
};

}  // namespace miniacc
