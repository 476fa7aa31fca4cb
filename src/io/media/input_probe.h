#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/error.h"

namespace miniacc {

/// A picture by its header.
struct PictureInfo {
  std::string format;       ///< "PNG", "JPEG", ...
  std::int64_t width = 0;   ///< upright
  std::int64_t height = 0;  ///< upright
};

/// A clip by its headers and timestamps; a folder of pictures likewise.
struct ClipInfo {
  std::int64_t width = 0;       ///< as it is shown: upright, square pixels
  std::int64_t height = 0;      ///< as it is shown
  std::int64_t num_frames = 0;  ///< at 24 fps, the whole clip
  double seconds = 0.0;         ///< of the pictures, num_frames / 24
  bool has_sound = false;
};

/// A sound by its headers.
struct SoundInfo {
  double seconds = 0.0;
  int channels = 0;
  int sample_rate_hz = 0;
};

/// What read_picture(), read_reference_clip() and read_sound() would find, without decoding: for a
/// dry run. Errors are theirs as far as headers show them.
[[nodiscard]] Result<PictureInfo> probe_picture(const std::filesystem::path& path);
/// `folder_fps` is the rate of a folder of pictures.
[[nodiscard]] Result<ClipInfo> probe_clip(const std::filesystem::path& path,
                                          double folder_fps = 24.0);
[[nodiscard]] Result<SoundInfo> probe_sound(const std::filesystem::path& path);

}  // namespace miniacc
