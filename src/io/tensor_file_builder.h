#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "io/mapped_file.h"
#include "io/tensor_file.h"

namespace miniacc {

/// What the readers of both container formats share; private to the io layer.

/// A header larger than this is refused (the limit of the safetensors library).
inline constexpr std::size_t kMaxHeaderBytes = 100'000'000;

/// What one file's header says.
struct TensorFileHeader {
  std::vector<TensorEntry> entries;
  std::map<std::string, std::string> metadata;
};

/// Collects files and entries and hands out the TensorFile.
class TensorFileBuilder {
 public:
  TensorFileBuilder(ContainerFormat format, std::filesystem::path path);

  /// Takes a file with its header; entries get its index.
  void add(MappedFile file, TensorFileHeader header);
  /// Sorts by name; kInvalidInput when two files hold a tensor of one name.
  [[nodiscard]] Result<TensorFile> finish() &&;

 private:
  TensorFile result_;
};

[[nodiscard]] bool is_utf8(std::string_view text);
/// Why a name cannot be a tensor name (empty, longer than 1024 bytes, not UTF-8, control characters
/// that would garble a terminal), as a clause such as "is empty"; nothing when it can.
[[nodiscard]] std::optional<std::string> tensor_name_problem(std::string_view name);
/// Text from a file as it may appear in a message: control characters and invalid UTF-8 replaced by
/// '?', cut to a sane length.
[[nodiscard]] std::string printable(std::string_view text);

/// Dimensions from a file as a Shape: rank at most Shape::kMaxRank, every dimension and the product
/// of the non-zero ones within std::int64_t. The error is a clause such as "has 7 dimensions, at
/// most 6 are supported", to be put after the tensor's name.
[[nodiscard]] tl::expected<Shape, std::string> checked_shape(std::span<const std::uint64_t> dims);

/// Checks that the entries fill [data_begin, end of file) one after another, each starting at the
/// next multiple of `alignment` (counted from data_begin) after the one before: no overlap, no
/// unused bytes, nothing beyond the file, less than `alignment` bytes after the last. Offsets are
/// absolute and offset + size_bytes does not overflow. Sorts `entries` by offset.
[[nodiscard]] Status check_layout(const MappedFile& file, std::vector<TensorEntry>& entries,
                                  std::size_t data_begin, std::size_t alignment);

}  // namespace miniacc
