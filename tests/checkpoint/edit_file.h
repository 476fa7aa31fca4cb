#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"

namespace miniacc::testing {

/// A tensor file in memory, to be changed and written back.
struct EditableTensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::byte> bytes;
};
struct EditableFile {
  std::map<std::string, EditableTensor> tensors;
  std::map<std::string, std::string> metadata;

  /// Reads a file, an index with its shards, or a folder with one of these.
  static EditableFile read(const std::filesystem::path& path);
  /// Writes one safetensors file.
  void write(const std::filesystem::path& path) const;

  void rename(const std::string& from, const std::string& to);
  /// Puts `prefix` before every name.
  void add_prefix(const std::string& prefix);
  void set_f32(const std::string& name, const Shape& shape, const std::vector<float>& values);
  [[nodiscard]] std::vector<float> f32(const std::string& name) const;
};

}  // namespace miniacc::testing
