#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "fuzz/memory_file.h"
#include "io/dequantize.h"
#include "io/tensor_file.h"

namespace miniacc::fuzz {

inline constexpr std::int64_t kMaxDequantized = 1 << 14;

/// Opens the bytes as a tensor file. One that is accepted keeps the promises of TensorFile: sorted
/// distinct names, every tensor inside its file and as long as its shape says; all of it can be
/// read and dequantised.
inline void open_and_check(const MemoryFile& memory) {
  const auto file = TensorFile::open(memory.path());
  if (!file) {
    require(!file.error().message.empty());
    return;
  }
  const TensorEntry* before = nullptr;
  std::vector<float> values;
  for (const TensorEntry& entry : file->entries()) {
    require(before == nullptr || before->name < entry.name);
    before = &entry;
    require(file->find(entry.name) == &entry);
    const std::size_t file_size = file->files().at(entry.file).bytes().size();
    require(entry.offset <= file_size && entry.size_bytes <= file_size - entry.offset);
    const std::int64_t count = entry.shape.num_elements();
    require(storage_bytes(entry.dtype, count) == entry.size_bytes);
    const auto bytes = file->bytes(entry);
    require(bytes.has_value());
    const std::int64_t block = block_elements(entry.dtype);
    const std::int64_t part = std::min(count, kMaxDequantized / block * block);
    values.resize(static_cast<std::size_t>(part));
    dequantize(entry.dtype, bytes->first(storage_bytes(entry.dtype, part).value()), part,
               values.data());
    file->drop_pages(entry);
  }
}

}  // namespace miniacc::fuzz
