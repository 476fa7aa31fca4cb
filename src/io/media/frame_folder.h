#pragma once

#include <filesystem>
#include <vector>

#include "core/error.h"

namespace miniacc {

/// The pictures of a folder in the order in which people count: numbers in names by value, so that
/// 2.png comes before 10.png. Hidden files, folders and other kinds of files are left out.
/// kInvalidInput when there is none, more than 100 000, or two names of the same order (1.png and
/// 01.png). Private to the io layer.
[[nodiscard]] Result<std::vector<std::filesystem::path>> list_frames(
    const std::filesystem::path& folder);

/// The folder's sound: audio.wav. Empty when there is none.
std::filesystem::path frame_folder_sound(const std::filesystem::path& folder);

}  // namespace miniacc
