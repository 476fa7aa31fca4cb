#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "io/media/byte_reader.h"
#include "io/media/orientation.h"

namespace miniacc {

/// The numbers in the first directory of a TIFF file or of an EXIF block, which is one (TIFF 6.0,
/// section 2). Private to the io layer.
class TiffDirectory {
 public:
  /// Empty when the bytes are no TIFF structure.
  static std::optional<TiffDirectory> parse(Bytes bytes);

  /// First value of a tag of type BYTE, SHORT or LONG.
  [[nodiscard]] std::optional<std::uint32_t> value(std::uint16_t tag) const;
  /// Whether a tag of any type is there.
  [[nodiscard]] bool has_value(std::uint16_t tag) const { return tags_.count(tag) != 0; }
  /// Tag 0x0112; upright where it is missing or none of the eight values.
  [[nodiscard]] Orientation orientation() const;
  /// Whether another directory (a page, a thumbnail) follows.
  [[nodiscard]] bool has_next() const { return has_next_; }

 private:
  std::map<std::uint16_t, std::uint32_t> values_;
  std::set<std::uint16_t> tags_;
  bool has_next_ = false;
};

/// Orientation in an EXIF block, with or without its "Exif\0\0" in front.
Orientation exif_orientation(Bytes exif);

}  // namespace miniacc
