#include "io/media/tiff_directory.h"

namespace miniacc {

using namespace std::string_view_literals;

std::optional<TiffDirectory> TiffDirectory::parse(Bytes bytes) {
  const bool little = begins_with(bytes, "II*\0"sv);
  if (!little && !begins_with(bytes, "MM\0*"sv)) {
    return std::nullopt;
  }
  const std::endian order = little ? std::endian::little : std::endian::big;
  ByteReader header(bytes, order);
  header.skip(4);
  const std::uint32_t offset = header.u32();
  if (!header.ok() || offset > bytes.size()) {
    return std::nullopt;
  }
  ByteReader reader(bytes.subspan(offset), order);
  TiffDirectory directory;
  const std::uint16_t count = reader.u16();
  for (std::uint16_t i = 0; i < count && reader.ok(); ++i) {
    const std::uint16_t tag = reader.u16();
    const std::uint16_t type = reader.u16();
    const std::uint32_t num_values = reader.u32();
    const Bytes field = reader.take(4);
    constexpr std::uint16_t kByte = 1;
    constexpr std::uint16_t kShort = 3;
    constexpr std::uint16_t kLong = 4;
    const std::size_t size = type == kByte ? 1 : type == kShort ? 2 : type == kLong ? 4 : 0;
    if (!reader.ok()) {
      break;
    }
    directory.tags_.insert(tag);
    if (size == 0 || num_values == 0) {
      continue;
    }
    ByteReader value(field, order);
    if (size * std::uint64_t{num_values} > 4) {  // the field says where the values are
      const std::uint32_t at = value.u32();
      value = ByteReader(at <= bytes.size() ? bytes.subspan(at) : Bytes{}, order);
    }
    const auto number = static_cast<std::uint32_t>(value.number(size));
    if (value.ok()) {
      directory.values_.emplace(tag, number);
    }
  }
  directory.has_next_ = reader.u32() != 0;
  return directory;
}

std::optional<std::uint32_t> TiffDirectory::value(std::uint16_t tag) const {
  const auto found = values_.find(tag);
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

Orientation TiffDirectory::orientation() const {
  const std::uint32_t number = value(0x0112).value_or(1);
  return number >= 1 && number <= 8 ? static_cast<Orientation>(number) : Orientation::kUpright;
}

Orientation exif_orientation(Bytes exif) {
  constexpr std::string_view kPrefix = "Exif\0\0"sv;
  const auto directory =
      TiffDirectory::parse(begins_with(exif, kPrefix) ? exif.subspan(kPrefix.size()) : exif);
  return directory ? directory->orientation() : Orientation::kUpright;
}

}  // namespace miniacc
