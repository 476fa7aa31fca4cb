#include <fmt/format.h>

#include <string_view>

#include "io/media/still_picture.h"
#include "io/media/tiff_directory.h"

namespace miniacc {
namespace {

using namespace std::string_view_literals;

// Each scan of a progressive file is a pass over the whole picture; encoders make about ten.
constexpr int kMaxScans = 100;

constexpr std::uint8_t kStartOfImage = 0xD8;
constexpr std::uint8_t kEndOfImage = 0xD9;
constexpr std::uint8_t kStartOfScan = 0xDA;

bool is_frame_header(std::uint8_t marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

/// Tables and headers that decoding needs; application data and comments are left out, except the
/// colour transform of APP14.
bool is_kept(std::uint8_t marker, Bytes data) {
  switch (marker) {
    case 0xC4:  // Huffman tables
    case 0xDB:  // quantisation tables
    case 0xDD:  // restart interval
    case kStartOfScan:
      return true;
    case 0xEE:
      return begins_with(data, "Adobe");
    default:
      return is_frame_header(marker);
  }
}

tl::unexpected<Error> cut_short() {
  return fail(ErrorCode::kInvalidInput, "is cut short: a JPEG without its end");
}

/// The bytes of a scan: up to the next marker that is no restart.
Bytes entropy_coded(Bytes rest) {
  for (std::size_t i = 0; i + 1 < rest.size(); ++i) {
    if (rest[i] == 0xFF && rest[i + 1] != 0x00 && rest[i + 1] != 0xFF &&
        (rest[i + 1] < 0xD0 || rest[i + 1] > 0xD7)) {
      return rest.first(i);
    }
  }
  return rest;
}

void append(std::vector<std::uint8_t>& to, Bytes bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

/// Takes a frame header (ITU-T T.81, B.2.2).
Status read_frame_header(StillPicture& picture, std::uint8_t marker, Bytes data,
                         int& num_components) {
  ByteReader header(data);
  const int precision = header.u8();
  picture.height = header.u16();
  picture.width = header.u16();
  num_components = header.u8();
  if (!header.ok()) {
    return cut_short();
  }
  if (marker >= 0xC5) {
    return fail(ErrorCode::kUnsupported,
                "is an arithmetic-coded or hierarchical JPEG, which is not read; save it as PNG");
  }
  if (precision != 8) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("is a JPEG of {} bits a sample, which is not read; save it as PNG", precision));
  }
  return {};
}

}  // namespace

Result<StillPicture> parse_jpeg(Bytes file) {
  StillPicture picture;
  CodedPicture coded;
  std::vector<std::uint8_t> tables;  // all but the start marker
  ByteReader reader(file.subspan(2));
  int num_components = 0;
  int num_scans = 0;
  bool has_adobe = false;
  bool has_exif = false;
  bool has_profile = false;
  while (true) {
    if (reader.u8() != 0xFF) {
      if (!reader.ok()) {
        return cut_short();
      }
      continue;  // encoders pad between segments
    }
    std::uint8_t marker = 0xFF;
    while (marker == 0xFF && reader.ok()) {
      marker = reader.u8();
    }
    if (!reader.ok()) {
      return cut_short();
    }
    if (marker == kEndOfImage) {
      break;
    }
    if (marker == 0x00 || marker == 0x01 || (marker >= 0xD0 && marker <= kStartOfImage)) {
      continue;  // stand alone
    }
    const std::uint16_t length = reader.u16();
    const Bytes data = reader.take(length < 2 ? 0 : length - 2U);
    if (!reader.ok() || length < 2) {
      return cut_short();
    }
    if (is_frame_header(marker)) {
      if (num_components != 0) {
        return fail(ErrorCode::kInvalidInput, "is damaged: a JPEG with two frame headers");
      }
      MINIACC_RETURN_IF_ERROR(read_frame_header(picture, marker, data, num_components));
    } else if (marker == 0xE1 && !has_exif && begins_with(data, "Exif\0\0"sv)) {
      has_exif = true;
      picture.orientation = exif_orientation(data);
    } else if (marker == 0xE2 && !has_profile && begins_with(data, "ICC_PROFILE\0"sv)) {
      has_profile = true;
      if (auto note = profile_note(data)) {
        picture.notes.push_back(*std::move(note));
      }
    }
    if (is_kept(marker, data)) {
      has_adobe = has_adobe || marker == 0xEE;
      tables.insert(tables.end(), {0xFF, marker, static_cast<std::uint8_t>(length >> 8U),
                                   static_cast<std::uint8_t>(length)});
      append(tables, data);
    }
    if (marker == kStartOfScan) {
      if (++num_scans > kMaxScans) {
        return fail(ErrorCode::kInvalidInput,
                    fmt::format("is a JPEG of more than {} scans", kMaxScans));
      }
      const Bytes scan = entropy_coded(reader.rest());
      append(tables, scan);
      reader.skip(scan.size());
    }
  }
  if (num_components == 0 || num_scans == 0) {
    return fail(ErrorCode::kInvalidInput, "is damaged: a JPEG without picture data");
  }
  if (num_components == 4) {
    picture.notes.emplace_back("its inks (CMYK) are converted to RGB without a colour profile");
  }
  coded.data = {0xFF, kStartOfImage};
  if (num_components == 4 && !has_adobe) {
    // Four components without a word on them are inks, inverted as Adobe's programs store them (so
    // take it libjpeg and Pillow); the decoder would take them for luminance, chroma and alpha.
    // "Adobe", version 100, two words of flags, no transform.
    constexpr std::uint8_t kAdobe[] = {0xFF, 0xEE, 0,   14, 'A', 'd', 'o', 'b',
                                       'e',  0,    100, 0,  0,   0,   0,   0};
    append(coded.data, kAdobe);
  }
  append(coded.data, tables);
  coded.data.insert(coded.data.end(), {0xFF, kEndOfImage});
  picture.tiles.push_back(std::move(coded));
  return picture;
}

}  // namespace miniacc
