#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/image.h"

namespace miniacc {

/// What read_picture() may take and how it fills transparent parts.
struct PictureOptions {
  std::array<std::uint8_t, 3> background{255, 255, 255};  ///< RGB behind transparent pixels
  std::int64_t max_pixels = 64'000'000;                   ///< refused from the header, undecoded
  std::int64_t max_file_bytes = std::int64_t{256} << 20;
};

/// A picture as people see it: upright, 8-bit RGB.
struct Picture {
  RgbImage image;
  std::vector<std::string> notes;  ///< what was adjusted, one sentence each, without the path
};

/// Decodes a still picture: PNG, JPEG, WebP, HEIC, AVIF, BMP, TIFF, GIF (docs/inputs.md has the
/// details). The file's first bytes decide what it is, not its name. Its orientation is applied,
/// transparency is laid over options.background, every sample depth and colour model becomes 8-bit
/// RGB by the file's own tags.
/// kNotFound, kIo; kInvalidInput for what is damaged, cut short, no picture, over a limit, or
/// changes while it is read; kUnsupported for a format that this build cannot decode. Each error is
/// one sentence that begins with the path.
[[nodiscard]] Result<Picture> read_picture(const std::filesystem::path& path,
                                           const PictureOptions& options = {});

}  // namespace miniacc
