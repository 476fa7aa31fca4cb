#pragma once

#include <filesystem>

#include "io/media/libav.h"

namespace miniacc::libav {

/// Opens a media file of one of the common containers and reads its stream headers.
[[nodiscard]] Result<Input> open_input(const std::filesystem::path& path);

}  // namespace miniacc::libav
