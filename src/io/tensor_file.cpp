#include "io/tensor_file.h"

#include <algorithm>
#include <utility>

#include "io/file_content.h"
#include "io/gguf.h"
#include "io/safetensors.h"

namespace miniacc {

Result<TensorFile> TensorFile::open(const std::filesystem::path& path) {
  MINIACC_ASSIGN(MappedFile file, MappedFile::open(path));
  MINIACC_ASSIGN(const FileContent content, recognise_content(file));
  if (content == FileContent::kSafetensorsIndex) {
    return open_safetensors_index(file);
  }
  const bool is_gguf = content == FileContent::kGguf;
  MINIACC_ASSIGN(TensorFileHeader header,
                 is_gguf ? read_gguf_header(file) : read_safetensors_header(file));
  TensorFileBuilder builder(is_gguf ? ContainerFormat::kGguf : ContainerFormat::kSafetensors, path);
  builder.add(std::move(file), std::move(header));
  return std::move(builder).finish();
}

const TensorEntry* TensorFile::find(std::string_view name) const {
  const auto place = std::lower_bound(
      entries_.begin(), entries_.end(), name,
      [](const TensorEntry& entry, std::string_view wanted) { return entry.name < wanted; });
  return place != entries_.end() && place->name == name ? &*place : nullptr;
}

Result<std::span<const std::byte>> TensorFile::bytes(const TensorEntry& entry) const {
  MINIACC_REQUIRE(entry.file < files_.size(), "tensor file: entry of another file");
  const MappedFile& file = files_[entry.file];
  MINIACC_RETURN_IF_ERROR(file.check_unchanged());
  return file.bytes().subspan(entry.offset, entry.size_bytes);
}

void TensorFile::drop_pages(const TensorEntry& entry) const {
  MINIACC_REQUIRE(entry.file < files_.size(), "tensor file: entry of another file");
  const MappedFile& file = files_[entry.file];
  file.drop_pages(file.bytes().subspan(entry.offset, entry.size_bytes));
}

}  // namespace miniacc
