#pragma once

#include <filesystem>

#include "core/error.h"
#include "core/image.h"
#include "io/media/partial_output.h"

namespace miniacc {

/// Writes a picture as PNG under a temporary name and renames it. kInvalidArgument where the name
/// does not end in ".png", or exists and may not be replaced; kIo where it cannot be written.
[[nodiscard]] Status write_picture(const RgbImage& image, const std::filesystem::path& path,
                                   ExistingOutput existing);

}  // namespace miniacc
