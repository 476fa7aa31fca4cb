#pragma once

#include <filesystem>
#include <string_view>

#include "core/error.h"

namespace miniacc {

/// Writes a small file, making the folders above it. kIo names the path.
[[nodiscard]] Status write_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace miniacc
