#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "core/shape.h"
#include "io/mapped_file.h"

namespace miniacc {

/// One tensor as its file's header describes it; all of it checked against the file's size.
struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;             ///< outermost first, row-major (GGUF's order is reversed on reading)
  std::size_t file = 0;    ///< index into TensorFile::files()
  std::size_t offset = 0;  ///< of the first byte, from the file's start
  std::size_t size_bytes = 0;
};

enum class ContainerFormat { kSafetensors, kGguf };

/// The tensors of a checkpoint file, or of the shards that an index file lists, mapped and lazy.
class TensorFile {
 public:
  /// Opens a .safetensors file, a *.safetensors.index.json (with its shards) or a .gguf file; the
  /// content decides, not the ending. Every offset, shape and name is checked: kInvalidInput says
  /// what is wrong and where.
  [[nodiscard]] static Result<TensorFile> open(const std::filesystem::path& path);

  [[nodiscard]] ContainerFormat format() const { return format_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const std::vector<MappedFile>& files() const { return files_; }
  /// Sorted by name.
  [[nodiscard]] const std::vector<TensorEntry>& entries() const { return entries_; }
  /// Null when there is no such tensor.
  [[nodiscard]] const TensorEntry* find(std::string_view name) const;
  /// safetensors `__metadata__`, or GGUF key/values with scalars and strings printed as text.
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// The stored bytes; kIo when the file changed underneath.
  [[nodiscard]] Result<std::span<const std::byte>> bytes(const TensorEntry& entry) const;
  /// Gives the tensor's pages back to the system.
  void drop_pages(const TensorEntry& entry) const;

 private:
  TensorFile() = default;
  friend class TensorFileBuilder;

  ContainerFormat format_ = ContainerFormat::kSafetensors;
  std::filesystem::path path_;
  std::vector<MappedFile> files_;
  std::vector<TensorEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace miniacc
