#pragma once

#include "core/error.h"
#include "io/mapped_file.h"

namespace miniacc {

/// What a file's first bytes say it is. Private to the io layer.
enum class FileContent { kSafetensors, kSafetensorsIndex, kGguf };

/// Decides by content, not by the file's ending. kInvalidInput names in plain words what the file
/// is instead: a git-lfs pointer, a web page, a PyTorch archive, zeros of an unfinished download,
/// ...
[[nodiscard]] Result<FileContent> recognise_content(const MappedFile& file);

}  // namespace miniacc
