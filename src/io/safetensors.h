#pragma once

#include "io/tensor_file_builder.h"

namespace miniacc {

/// Reads and checks the header of one safetensors file: 8 bytes of little-endian header length, a
/// JSON object, tensor data (format: https://github.com/huggingface/safetensors, README). Private
/// to the io layer.
[[nodiscard]] Result<TensorFileHeader> read_safetensors_header(const MappedFile& file);

/// Opens the shards that an index file ({"weight_map": {tensor: shard}}) lists, beside it. Every
/// listed tensor is in its shard and every tensor of a shard is listed.
[[nodiscard]] Result<TensorFile> open_safetensors_index(const MappedFile& index);

}  // namespace miniacc
