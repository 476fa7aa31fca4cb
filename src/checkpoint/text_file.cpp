#include "checkpoint/text_file.h"

#include <fstream>

namespace miniacc {

Status write_text_file(const std::filesystem::path& path, std::string_view text) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream.write(text.data(), static_cast<std::streamsize>(text.size()));
  stream.close();
  if (error || !stream) {
    return fail(ErrorCode::kIo, path.string() + ": cannot write this file");
  }
  return {};
}

}  // namespace miniacc
