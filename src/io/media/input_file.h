#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace miniacc {

/// A regular file that is held open while it is read, so that a file of the same name put in its
/// place is not seen; a change of the file itself is found by check_unchanged(). Move-only. Private
/// to the io layer.
class InputFile {
 public:
  /// `wanted` completes the sentence of a refusal, e.g. "a picture". kNotFound; kInvalidInput for a
  /// folder, a pipe, a device, an empty file and one that somebody is writing to; kIo.
  [[nodiscard]] static Result<InputFile> open(const std::filesystem::path& path,
                                              std::string_view wanted);

  /// The same open file once more, for a second reader. kIo when no descriptor is left.
  [[nodiscard]] Result<InputFile> again() const;

  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) = delete;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::int64_t size_bytes() const { return stamp_.size_bytes; }

  /// Fills `out` from `offset` on and returns how many bytes there were; fewer than asked for at
  /// the end of the file only.
  [[nodiscard]] Result<std::size_t> read_at(std::int64_t offset, std::span<std::uint8_t> out) const;
  /// The whole file. kInvalidInput, with both numbers, when it is longer than `max_bytes`.
  [[nodiscard]] Result<std::vector<std::uint8_t>> read_all(std::int64_t max_bytes) const;
  /// kInvalidInput when size or times differ from those at open(): what was read may be a mixture.
  /// To be called after the last read.
  [[nodiscard]] Status check_unchanged() const;

 private:
  struct Stamp {
    std::int64_t size_bytes = 0;
    std::int64_t modified_ns = 0;
    std::int64_t changed_ns = 0;
    bool operator==(const Stamp&) const = default;
  };

  InputFile(std::filesystem::path path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {}
  [[nodiscard]] Result<Stamp> read_stamp(std::string_view wanted) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  Stamp stamp_;
};

}  // namespace miniacc
