#include "io/media/media_kind.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

namespace miniacc {
namespace {

using namespace std::string_view_literals;

struct Kind {
  MediaKind kind;
  std::string_view text;
  std::string_view endings;  // each between two spaces
};
constexpr std::array kKinds = {
    Kind{MediaKind::kPng, "a PNG picture", " .png .apng "},
    Kind{MediaKind::kJpeg, "a JPEG picture", " .jpg .jpeg .jpe .jfif "},
    Kind{MediaKind::kWebp, "a WebP picture", " .webp "},
    Kind{MediaKind::kGif, "a GIF picture", " .gif "},
    Kind{MediaKind::kBmp, "a BMP picture", " .bmp .dib "},
    Kind{MediaKind::kTiff, "a TIFF picture", " .tif .tiff "},
    Kind{MediaKind::kAvif, "an AVIF picture", " .avif "},
    Kind{MediaKind::kHeic, "a HEIC picture", " .heic .heif .hif "},
    Kind{MediaKind::kJpegXl, "a JPEG XL picture", " .jxl "},
    Kind{MediaKind::kJpeg2000, "a JPEG 2000 picture", " .jp2 .j2k .jpf "},
    Kind{MediaKind::kPsd, "a Photoshop document", " .psd "},
    Kind{MediaKind::kSvg, "an SVG drawing", " .svg "},
    Kind{MediaKind::kPdf, "a PDF document", " .pdf "},
    Kind{MediaKind::kIsoMedia, "an MP4 or MOV file", " .mp4 .mov .m4v .m4a .m4b .3gp .3g2 .qt "},
    Kind{MediaKind::kMatroska, "a Matroska or WebM file", " .mkv .webm .mka "},
    Kind{MediaKind::kAvi, "an AVI file", " .avi "},
    Kind{MediaKind::kWav, "a WAV sound", " .wav .wave .bwf .rf64 "},
    Kind{MediaKind::kFlac, "a FLAC sound", " .flac "},
    Kind{MediaKind::kOgg, "an Ogg sound", " .ogg .oga .ogv .opus "},
    Kind{MediaKind::kMp3, "an MP3 sound", " .mp3 .mp2 .mpga "},
    Kind{MediaKind::kAac, "an AAC sound", " .aac .adts "},
    Kind{MediaKind::kPlaylist, "a playlist, which only names other files", " .m3u .m3u8 .pls "},
    Kind{MediaKind::kWebPage, "a web page: the download failed", " .htm .html "},
    Kind{MediaKind::kGitLfsPointer,
         "a git-lfs pointer, not the file itself: fetch it with `git lfs pull`", ""},
    Kind{MediaKind::kZip, "a ZIP archive", " .zip "},
    Kind{MediaKind::kZeros, "filled with zeros: the download did not finish", ""},
    Kind{MediaKind::kUnknown, "in no format that is known here", ""},
};

const Kind& entry(MediaKind kind) {
  return *std::find_if(kKinds.begin(), kKinds.end(),
                       [kind](const Kind& row) { return row.kind == kind; });
}

struct Magic {
  std::size_t offset;
  std::string_view bytes;
  MediaKind kind;
};
constexpr std::array kMagics = {
    Magic{0, "\x89PNG\r\n\x1A\n"sv, MediaKind::kPng},
    Magic{0, "\xFF\xD8\xFF"sv, MediaKind::kJpeg},
    Magic{0, "GIF87a"sv, MediaKind::kGif},
    Magic{0, "GIF89a"sv, MediaKind::kGif},
    Magic{0, "BM"sv, MediaKind::kBmp},
    Magic{0, "II*\0"sv, MediaKind::kTiff},
    Magic{0, "MM\0*"sv, MediaKind::kTiff},
    Magic{0, "II+\0"sv, MediaKind::kTiff},
    Magic{0, "MM\0+"sv, MediaKind::kTiff},
    Magic{0, "\xFF\x0A"sv, MediaKind::kJpegXl},
    Magic{0, "\0\0\0\x0CJXL \r\n\x87\n"sv, MediaKind::kJpegXl},
    Magic{0, "\0\0\0\x0CjP  \r\n\x87\n"sv, MediaKind::kJpeg2000},
    Magic{0, "\xFF\x4F\xFF\x51"sv, MediaKind::kJpeg2000},
    Magic{0, "8BPS"sv, MediaKind::kPsd},
    Magic{0, "%PDF-"sv, MediaKind::kPdf},
    Magic{0, "\x1A\x45\xDF\xA3"sv, MediaKind::kMatroska},
    Magic{0, "fLaC"sv, MediaKind::kFlac},
    Magic{0, "OggS"sv, MediaKind::kOgg},
    Magic{0, "ID3"sv, MediaKind::kMp3},
    Magic{0, "#EXTM3U"sv, MediaKind::kPlaylist},
    Magic{0, "[playlist]"sv, MediaKind::kPlaylist},
    Magic{0, "ffconcat"sv, MediaKind::kPlaylist},
    Magic{0, "PK\x03\x04"sv, MediaKind::kZip},
    Magic{0, "version https://git-lfs"sv, MediaKind::kGitLfsPointer},
    Magic{4, "ftyp"sv, MediaKind::kIsoMedia},
    Magic{4, "moov"sv, MediaKind::kIsoMedia},
    Magic{4, "mdat"sv, MediaKind::kIsoMedia},
    Magic{4, "wide"sv, MediaKind::kIsoMedia},
    Magic{4, "free"sv, MediaKind::kIsoMedia},
    Magic{4, "skip"sv, MediaKind::kIsoMedia},
};

/// The kind of a file that begins with an `ftyp` box, by its brands.
MediaKind iso_kind(std::string_view head) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(head[i]); };
  const std::size_t length = std::min<std::size_t>(
      head.size(), std::size_t{byte(0)} << 24U | byte(1) << 16U | byte(2) << 8U | byte(3));
  const auto has = [&](std::string_view brand) {
    for (std::size_t at = 8; at + 4 <= length; at += 4) {
      if (at != 12 && head.substr(at, 4) == brand) {  // 12: the minor version
        return true;
      }
    }
    return false;
  };
  // A sequence ("avis", "hevc", "msf1") that also names a still brand has a still picture first.
  if (has("avif")) {
    return MediaKind::kAvif;
  }
  if (has("heic") || has("heix") || has("heim") || has("heis") || has("mif1")) {
    return MediaKind::kHeic;
  }
  return MediaKind::kIsoMedia;
}

/// By the sync word of a frame and fields that may not have every value.
MediaKind mpeg_audio_kind(std::string_view head) {
  if (head.size() < 4 || static_cast<unsigned char>(head[0]) != 0xFF) {
    return MediaKind::kUnknown;
  }
  const unsigned second = static_cast<unsigned char>(head[1]);
  const unsigned third = static_cast<unsigned char>(head[2]);
  if ((second & 0xF6U) == 0xF0U) {  // ADTS: layer is 0
    return MediaKind::kAac;
  }
  const bool version_known = (second & 0x18U) != 0x08U;
  const bool layer_known = (second & 0x06U) != 0;
  const bool rate_known = (third & 0xF0U) != 0xF0U && (third & 0x0CU) != 0x0CU;
  return (second & 0xE0U) == 0xE0U && version_known && layer_known && rate_known
             ? MediaKind::kMp3
             : MediaKind::kUnknown;
}

}  // namespace

MediaKind recognise_media(std::span<const std::uint8_t> bytes) {
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()),
                              std::min(bytes.size(), kMediaHeadBytes));
  const auto at = [&](std::size_t offset, std::string_view text) {
    return head.size() >= offset + text.size() && head.substr(offset, text.size()) == text;
  };
  for (const Magic& magic : kMagics) {
    if (at(magic.offset, magic.bytes)) {
      return magic.bytes == "ftyp" && head.size() >= 16 ? iso_kind(head) : magic.kind;
    }
  }
  if (at(0, "RIFF") || at(0, "RF64") || at(0, "riff")) {
    return at(8, "WEBP")                    ? MediaKind::kWebp
           : at(8, "AVI ")                  ? MediaKind::kAvi
           : at(8, "WAVE") || at(0, "riff") ? MediaKind::kWav
                                            : MediaKind::kUnknown;
  }
  const MediaKind mpeg = mpeg_audio_kind(head);
  if (mpeg != MediaKind::kUnknown) {
    return mpeg;
  }
  const std::size_t text = head.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  if (text != std::string_view::npos && head[text] == '<') {
    if (head.find("<svg") != std::string_view::npos) {
      return MediaKind::kSvg;
    }
    std::string start(head.substr(text, 16));
    std::transform(start.begin(), start.end(), start.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (start.starts_with("<!doctype html") || start.starts_with("<html")) {
      return MediaKind::kWebPage;
    }
  }
  if (head.size() >= 16 && head.find_first_not_of('\0') == std::string_view::npos) {
    return MediaKind::kZeros;
  }
  return MediaKind::kUnknown;
}

std::string_view describe(MediaKind kind) { return entry(kind).text; }

bool is_picture(MediaKind kind) { return kind <= MediaKind::kPsd; }

bool may_hold_video(MediaKind kind) {
  return kind == MediaKind::kIsoMedia || kind == MediaKind::kMatroska || kind == MediaKind::kAvi;
}

bool may_hold_sound(MediaKind kind) {
  switch (kind) {
    case MediaKind::kWav:
    case MediaKind::kFlac:
    case MediaKind::kOgg:
    case MediaKind::kMp3:
    case MediaKind::kAac:
      return true;
    default:
      return may_hold_video(kind);
  }
}

bool ending_fits(MediaKind kind, std::string_view ending) {
  std::string lower = " ";
  for (const char c : ending) {
    lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  lower += ' ';
  const auto has = [&](const Kind& row) {
    return row.endings.find(lower) != std::string_view::npos;
  };
  return has(entry(kind)) || std::none_of(kKinds.begin(), kKinds.end(), has);
}

}  // namespace miniacc
