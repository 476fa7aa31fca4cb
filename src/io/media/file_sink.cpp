#include "io/media/file_sink.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "io/media/partial_output.h"

namespace miniacc {

Result<FileSink> FileSink::create(const std::filesystem::path& path) {
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) {
    return fail(ErrorCode::kIo, fmt::format("{}: {}", path.string(), std::strerror(errno)));
  }
  return FileSink(path, file);
}

tl::unexpected<Error> FileSink::failure() const {
  return fail(ErrorCode::kIo,
              fmt::format("{}: cannot be written: {}", path_.string(), std::strerror(errno)));
}

Status FileSink::write(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) {
    return failure();
  }
  return {};
}

Status FileSink::overwrite(std::size_t offset, std::string_view bytes) {
  if (std::fseek(file_.get(), static_cast<long>(offset), SEEK_SET) != 0) {
    return failure();
  }
  MINIACC_RETURN_IF_ERROR(write(bytes));
  if (std::fseek(file_.get(), 0, SEEK_END) != 0) {
    return failure();
  }
  return {};
}

Status FileSink::close() {
  if (std::fflush(file_.get()) != 0) {
    return failure();
  }
  MINIACC_RETURN_IF_ERROR(sync_to_disk(path_));
  if (std::fclose(file_.release()) != 0) {
    return failure();
  }
  return {};
}

}  // namespace miniacc
