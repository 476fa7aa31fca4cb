#include "io/media/still_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "io/media/tiff_directory.h"

namespace miniacc {
namespace {

using namespace std::string_view_literals;

tl::unexpected<Error> cut_short(std::string_view where) {
  return fail(ErrorCode::kInvalidInput, fmt::format("is cut short or damaged: {}", where));
}

void append(std::vector<std::uint8_t>& to, Bytes bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

void append(std::vector<std::uint8_t>& to, std::string_view text) {
  to.insert(to.end(), text.begin(), text.end());
}

void append_le(std::vector<std::uint8_t>& to, std::uint32_t value, int size) {
  for (int i = 0; i < size; ++i) {
    to.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
  }
}

constexpr const char* kFirstFrameNote = "has several frames; the first is used";

// PNG (ISO/IEC 15948): keeps the critical chunks and the transparency. Texts and profiles are
// compressed without a stated size and stay out.
Result<StillPicture> parse_png(Bytes file) {
  StillPicture picture;
  CodedPicture coded;
  append(coded.data, file.first(8));
  ByteReader reader(file.subspan(8));
  bool first = true;
  bool has_data = false;
  while (true) {
    const Bytes whole = reader.rest();
    const std::uint32_t length = reader.u32();
    const Bytes type = reader.take(4);
    const Bytes data = reader.take(length);
    reader.skip(4);  // CRC, checked by the decoder
    if (!reader.ok()) {
      return cut_short("a PNG chunk ends behind the file");
    }
    const std::string_view name(reinterpret_cast<const char*>(type.data()), 4);
    if (first != (name == "IHDR")) {
      return fail(ErrorCode::kInvalidInput, "is damaged: a PNG begins with one header chunk");
    }
    if (first) {
      ByteReader header(data);
      picture.width = header.u32();
      picture.height = header.u32();
      first = false;
    }
    if (name == "IHDR" || name == "PLTE" || name == "tRNS" || name == "IDAT" || name == "IEND") {
      append(coded.data, whole.first(12 + std::size_t{length}));
      has_data = has_data || name == "IDAT";
    } else if (name == "eXIf") {
      picture.orientation = exif_orientation(data);
    } else if (name == "acTL") {
      picture.notes.emplace_back(kFirstFrameNote);
    } else if (name == "iCCP") {
      // The profile's name is plain text, the profile is compressed.
      const auto end = std::find(data.begin(), data.end(), 0);
      const std::string profile(data.begin(), end);
      if (profile.find("sRGB") == std::string::npos && profile != "ICC Profile" &&
          profile != "icc") {
        picture.notes.emplace_back("its colour profile is not applied, sRGB is taken");
      }
    }
    if (name == "IEND") {
      break;
    }
  }
  if (!has_data) {
    return cut_short("a PNG without picture data");
  }
  picture.tiles.push_back(std::move(coded));
  return picture;
}

// WebP (RFC 9649): keeps the image chunks of the first frame.
struct WebpChunk {
  std::string_view name;
  Bytes data;
  Bytes whole;  ///< with its head and padding
};

/// The next chunk; empty at the end, and, with reader.ok() false, where it is cut.
std::optional<WebpChunk> next_chunk(ByteReader& reader) {
  if (reader.left() == 0) {
    return std::nullopt;
  }
  const Bytes rest = reader.rest();
  const Bytes name = reader.take(4);
  const std::uint32_t length = reader.u32();
  const Bytes data = reader.take(length);
  // The padding of the last chunk is often forgotten.
  const std::size_t padding = length % 2 != 0 && reader.left() > 0 ? 1 : 0;
  reader.skip(padding);
  if (!reader.ok()) {
    return std::nullopt;
  }
  return WebpChunk{{reinterpret_cast<const char*>(name.data()), 4},
                   data,
                   rest.first(8 + std::size_t{length} + padding)};
}

void append_chunk(std::vector<std::uint8_t>& to, const WebpChunk& chunk) {
  append(to, chunk.whole);
  if (chunk.whole.size() % 2 != 0) {
    to.push_back(0);
  }
}

struct WebpImage {
  std::vector<std::uint8_t> chunks;
  std::int64_t width = 0;
  std::int64_t height = 0;
  bool has_alpha_chunk = false;
};

/// Takes a chunk that belongs to the picture itself.
void take_image_chunk(WebpImage& image, const WebpChunk& chunk) {
  if (chunk.name == "ALPH") {
    image.has_alpha_chunk = true;
    append_chunk(image.chunks, chunk);
  } else if (chunk.name == "VP8 " && image.width == 0) {
    ByteReader header(chunk.data, std::endian::little);
    header.skip(6);  // frame tag and start code
    image.width = header.u16() & 0x3FFFU;
    image.height = header.u16() & 0x3FFFU;
    append_chunk(image.chunks, chunk);
  } else if (chunk.name == "VP8L" && image.width == 0) {
    ByteReader header(chunk.data, std::endian::little);
    header.skip(1);
    const std::uint32_t bits = header.u32();
    image.width = (bits & 0x3FFFU) + 1;
    image.height = (bits >> 14U & 0x3FFFU) + 1;
    append_chunk(image.chunks, chunk);
  }
}

Result<StillPicture> parse_webp(Bytes file) {
  StillPicture picture;
  ByteReader head(file, std::endian::little);
  head.skip(4);
  const std::uint32_t size = head.u32();
  const Bytes body = head.take(std::max<std::uint32_t>(size, 4));
  if (!head.ok()) {
    return cut_short(fmt::format("a WebP of {} bytes, {} are there", size + 8ULL, file.size()));
  }
  ByteReader reader(body.subspan(4), std::endian::little);
  std::int64_t canvas_width = 0;
  std::int64_t canvas_height = 0;
  WebpImage image;
  while (const auto chunk = next_chunk(reader)) {
    take_image_chunk(image, *chunk);
    if (chunk->name == "VP8X") {
      ByteReader header(chunk->data, std::endian::little);
      header.skip(4);
      canvas_width = header.u24() + 1;
      canvas_height = header.u24() + 1;
    } else if (chunk->name == "EXIF") {
      picture.orientation = exif_orientation(chunk->data);
    } else if (chunk->name == "ICCP") {
      if (auto note = profile_note(chunk->data)) {
        picture.notes.push_back(*std::move(note));
      }
    } else if (chunk->name == "ANMF" && image.width == 0) {
      ByteReader frame(chunk->data, std::endian::little);
      frame.skip(16);
      while (const auto part = next_chunk(frame)) {
        take_image_chunk(image, *part);
      }
      if (image.width != canvas_width || image.height != canvas_height) {
        return fail(ErrorCode::kUnsupported,
                    "is an animated WebP whose first frame does not fill the picture; save that "
                    "frame as PNG");
      }
      picture.notes.emplace_back(kFirstFrameNote);
    }
  }
  if (!reader.ok() || image.width == 0) {
    return cut_short("a WebP without its picture");
  }
  picture.width = image.width;
  picture.height = image.height;
  CodedPicture coded;
  const std::size_t extended = image.has_alpha_chunk ? 18 : 0;
  append(coded.data, "RIFF"sv);
  append_le(coded.data, static_cast<std::uint32_t>(4 + extended + image.chunks.size()), 4);
  append(coded.data, "WEBP"sv);
  if (image.has_alpha_chunk) {
    append(coded.data, "VP8X"sv);
    append_le(coded.data, 10, 4);
    append_le(coded.data, 0x10, 4);  // it has alpha
    append_le(coded.data, static_cast<std::uint32_t>(image.width - 1), 3);
    append_le(coded.data, static_cast<std::uint32_t>(image.height - 1), 3);
  }
  append(coded.data, Bytes(image.chunks));
  picture.tiles.push_back(std::move(coded));
  return picture;
}

/// Skips the sub-blocks of a GIF block with their terminator.
void skip_sub_blocks(ByteReader& reader) {
  while (reader.ok()) {
    const std::uint8_t length = reader.u8();
    if (length == 0) {
      return;
    }
    reader.skip(length);
  }
}

// GIF89a: everything up to the end of the first image.
Result<StillPicture> parse_gif(Bytes file) {
  StillPicture picture;
  ByteReader reader(file, std::endian::little);
  const auto color_table_bytes = [](std::uint8_t flags) {
    return (flags & 0x80U) != 0 ? std::size_t{3} << ((flags & 7U) + 1) : 0;
  };
  reader.skip(6);
  picture.width = reader.u16();
  picture.height = reader.u16();
  const std::uint8_t flags = reader.u8();
  reader.skip(2 + color_table_bytes(flags));
  CodedPicture coded;
  while (reader.ok()) {
    const std::uint8_t kind = reader.u8();
    if (kind == 0x21) {
      reader.skip(1);
      skip_sub_blocks(reader);
      continue;
    }
    if (kind != 0x2C) {
      break;
    }
    if (!coded.data.empty()) {
      picture.notes.emplace_back(kFirstFrameNote);
      break;
    }
    reader.skip(8);
    const std::uint8_t image_flags = reader.u8();
    reader.skip(color_table_bytes(image_flags) + 1);  // 1: code size of the LZW data
    skip_sub_blocks(reader);
    if (reader.ok()) {
      append(coded.data, file.first(file.size() - reader.left()));
      coded.data.push_back(0x3B);  // trailer
    }
  }
  if (coded.data.empty()) {
    return cut_short("a GIF without a whole picture");
  }
  picture.tiles.push_back(std::move(coded));
  return picture;
}

Result<StillPicture> parse_bmp(Bytes file) {
  StillPicture picture;
  ByteReader reader(file, std::endian::little);
  reader.skip(14);
  const std::uint32_t header_size = reader.u32();
  if (header_size == 12) {  // OS/2
    picture.width = reader.u16();
    picture.height = reader.u16();
  } else {
    picture.width = static_cast<std::int32_t>(reader.u32());
    // Negative: rows run from top to bottom.
    picture.height = std::abs(std::int64_t{static_cast<std::int32_t>(reader.u32())});
    reader.skip(4);
    constexpr std::uint32_t kPlain = 0;
    constexpr std::uint32_t kHeaderWithAlphaMask = 56;
    const bool plain = reader.u32() == kPlain;
    reader.skip(32);  // up to the mask of alpha
    const bool has_alpha_mask = header_size >= kHeaderWithAlphaMask && reader.u32() != 0;
    picture.opaque = plain || !has_alpha_mask;
  }
  if (!reader.ok()) {
    return cut_short("a BMP header");
  }
  picture.tiles.push_back({{file.begin(), file.end()}, {}});
  return picture;
}

// What a decoder needs of a TIFF directory. It refuses tags that it does not know, and texts and
// profiles are of no use to it.
constexpr std::array<std::uint16_t, 20> kTiffTags = {256, 257, 258, 259, 262, 266, 273,
                                                     277, 278, 279, 284, 292, 293, 317,
                                                     320, 322, 323, 324, 325, 530};

/// The file with the other tags taken out of its first directory, and no further one.
std::vector<std::uint8_t> with_known_tags(Bytes file) {
  const std::endian order = file[0] == 'I' ? std::endian::little : std::endian::big;
  ByteReader header(file.subspan(4), order);
  const std::size_t at = header.u32();
  ByteReader reader(file.subspan(at), order);
  const std::size_t count = reader.u16();
  std::vector<std::uint8_t> result(file.begin(), file.end());
  std::size_t end = at + 2;
  std::size_t num_kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Bytes entry = reader.take(12);
    if (entry.empty()) {
      break;
    }
    const std::uint16_t tag = ByteReader(entry, order).u16();
    if (std::find(kTiffTags.begin(), kTiffTags.end(), tag) != kTiffTags.end()) {
      std::copy(entry.begin(), entry.end(), result.begin() + static_cast<std::ptrdiff_t>(end));
      end += entry.size();
      ++num_kept;
    }
  }
  const auto high = static_cast<std::uint8_t>(num_kept >> 8U);
  const auto low = static_cast<std::uint8_t>(num_kept);
  result[at] = order == std::endian::big ? high : low;
  result[at + 1] = order == std::endian::big ? low : high;
  // No next directory. A file may end right behind its last entry.
  std::fill_n(result.begin() + static_cast<std::ptrdiff_t>(end),
              std::min<std::size_t>(4, result.size() - end), std::uint8_t{0});
  return result;
}

Result<StillPicture> parse_tiff(Bytes file) {
  if (begins_with(file, "II+\0"sv) || begins_with(file, "MM\0+"sv)) {
    return fail(ErrorCode::kUnsupported, "is a BigTIFF, which is not read; save it as PNG");
  }
  const auto directory = TiffDirectory::parse(file);
  constexpr std::uint16_t kWidth = 256;
  constexpr std::uint16_t kHeight = 257;
  constexpr std::uint16_t kCompression = 259;
  constexpr std::uint16_t kPhotometric = 262;
  constexpr std::uint16_t kExtraSamples = 338;
  constexpr std::uint16_t kSampleFormat = 339;
  constexpr std::uint16_t kProfile = 34675;
  if (!directory || !directory->value(kWidth) || !directory->value(kHeight)) {
    return cut_short("a TIFF without the size of its picture");
  }
  const std::uint32_t compression = directory->value(kCompression).value_or(1);
  if (compression == 6 || compression == 7) {
    return fail(ErrorCode::kUnsupported,
                "is a TIFF with JPEG compression, which is not read; save it as JPEG or PNG");
  }
  if (directory->value(kSampleFormat).value_or(1) > 2) {
    return fail(ErrorCode::kUnsupported,
                "is a TIFF of floating-point samples, which is not read; save it with 16 bits");
  }
  StillPicture picture;
  picture.width = *directory->value(kWidth);
  picture.height = *directory->value(kHeight);
  picture.orientation = directory->orientation();
  constexpr std::uint32_t kPremultiplied = 1;
  picture.premultiplied = directory->value(kExtraSamples) == kPremultiplied;
  picture.opaque = directory->value(kExtraSamples) == 0U;
  constexpr std::uint32_t kInks = 5;
  if (directory->value(kPhotometric) == kInks) {
    picture.notes.emplace_back("its inks (CMYK) are converted to RGB without a colour profile");
  }
  if (directory->has_value(kProfile)) {
    picture.notes.emplace_back("its colour profile is not applied, sRGB is taken");
  }
  if (directory->has_next()) {
    picture.notes.emplace_back("has several pages; the first is used");
  }
  picture.tiles.push_back({with_known_tags(file), {}});
  return picture;
}

}  // namespace

std::optional<std::string> profile_note(Bytes icc_profile) {
  constexpr std::string_view kName = "sRGB";
  if (std::search(icc_profile.begin(), icc_profile.end(), kName.begin(), kName.end()) !=
      icc_profile.end()) {
    return std::nullopt;
  }
  return "its colour profile is not applied, sRGB is taken";
}

Result<StillPicture> parse_still_picture(MediaKind kind, Bytes file) {
  const auto parse = [&]() -> Result<StillPicture> {
    switch (kind) {
      case MediaKind::kPng:
        return parse_png(file);
      case MediaKind::kJpeg:
        return parse_jpeg(file);
      case MediaKind::kWebp:
        return parse_webp(file);
      case MediaKind::kGif:
        return parse_gif(file);
      case MediaKind::kBmp:
        return parse_bmp(file);
      case MediaKind::kTiff:
        return parse_tiff(file);
      case MediaKind::kAvif:
      case MediaKind::kHeic:
        return parse_heif(file);
      default:
        return fail(is_picture(kind) || kind == MediaKind::kSvg || kind == MediaKind::kPdf
                        ? ErrorCode::kUnsupported
                        : ErrorCode::kInvalidInput,
                    fmt::format("is {}, wanted a picture: PNG, JPEG, WebP, HEIC, AVIF, BMP, TIFF "
                                "or GIF",
                                describe(kind)));
    }
  };
  MINIACC_ASSIGN(StillPicture picture, parse());
  picture.kind = kind;
  if (picture.width < 1 || picture.height < 1) {
    return fail(ErrorCode::kInvalidInput, fmt::format("is damaged: its header says {}x{} pixels",
                                                      picture.width, picture.height));
  }
  return picture;
}

}  // namespace miniacc
