#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string_view>

#include "core/error.h"

namespace miniacc {

/// A file being written; every error is seen, at the latest by close().
class FileSink {
 public:
  [[nodiscard]] static Result<FileSink> create(const std::filesystem::path& path);
  [[nodiscard]] Status write(std::string_view bytes);
  /// Replaces bytes that were written before, then goes on at the end.
  [[nodiscard]] Status overwrite(std::size_t offset, std::string_view bytes);
  /// Flushes, syncs and closes.
  [[nodiscard]] Status close();

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  FileSink(std::filesystem::path path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  [[nodiscard]] tl::unexpected<Error> failure() const;

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, CloseFile> file_;
};

}  // namespace miniacc
