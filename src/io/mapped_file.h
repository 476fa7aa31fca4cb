#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "core/error.h"

namespace miniacc {

/// A file mapped read-only for the life of this object. Move-only.
class MappedFile {
 public:
  /// kNotFound, kIo or kInvalidInput (a folder, a pipe, an empty file) name the path.
  [[nodiscard]] static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }

  /// Gives the pages that lie wholly inside `part` back to the system, so that resident memory
  /// stays bounded by what is in use. A later read brings them back from the file.
  void drop_pages(std::span<const std::byte> part) const;
  /// kIo when the file is no longer as long as when it was mapped (reading past its end would kill
  /// the process); checked before each tensor is read. A file that shrinks during a read is not
  /// caught.
  [[nodiscard]] Status check_unchanged() const;

 private:
  MappedFile(std::filesystem::path path, int descriptor, const std::byte* data, std::size_t size);
  void close() noexcept;

  std::filesystem::path path_;
  int descriptor_ = -1;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace miniacc
