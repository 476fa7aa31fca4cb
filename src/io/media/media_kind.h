#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace miniacc {

/// What a media file's first bytes say it is. Private to the io layer.
enum class MediaKind {
  kPng,
  kJpeg,
  kWebp,
  kGif,
  kBmp,
  kTiff,
  kAvif,
  kHeic,
  kJpegXl,
  kJpeg2000,
  kPsd,
  kSvg,
  kPdf,
  kIsoMedia,  ///< MP4, MOV, M4A, 3GP
  kMatroska,  ///< MKV, WebM
  kAvi,
  kWav,
  kFlac,
  kOgg,
  kMp3,  ///< begins with an ID3 tag or a frame of MPEG audio
  kAac,  ///< ADTS frames
  kPlaylist,
  kWebPage,
  kGitLfsPointer,
  kZip,
  kZeros,
  kUnknown,
};

/// Bytes that recognise_media() looks at; fewer are enough.
inline constexpr std::size_t kMediaHeadBytes = 4096;

MediaKind recognise_media(std::span<const std::uint8_t> head);

/// With its article, to complete "is ...": "a PNG picture".
std::string_view describe(MediaKind kind);

bool is_picture(MediaKind kind);
/// Containers that may hold video.
bool may_hold_video(MediaKind kind);
/// Containers and streams that may hold sound.
bool may_hold_sound(MediaKind kind);

/// Whether a file name's ending (with its dot, any case) is one that this kind has; true for an
/// ending that names no media kind at all.
bool ending_fits(MediaKind kind, std::string_view ending);

}  // namespace miniacc
