#pragma once

#include <filesystem>

namespace miniacc::testing {

/// A ComfyUI transformer file of the released size, int8 and pruned (21 GB): a true header over a
/// hole, so that it takes no space. Returns its size in bytes.
std::uintmax_t write_sparse_transformer(const std::filesystem::path& path);

}  // namespace miniacc::testing
