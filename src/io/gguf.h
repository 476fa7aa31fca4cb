#pragma once

#include "io/tensor_file_builder.h"

namespace miniacc {

/// Reads and checks the header of a GGUF file, version 2 or 3, little-endian (format:
/// https://github.com/ggml-org/ggml, docs/gguf.md): magic, version, counts, key/value pairs, tensor
/// infos, data from the next multiple of general.alignment on. A file may have no pairs at all.
/// Dimensions are turned outermost first; `comfy.gguf.orig_shape.<name>` overrides them. Tensor
/// types without a DType are kUnsupported with the type's name. Private to the io layer.
[[nodiscard]] Result<TensorFileHeader> read_gguf_header(const MappedFile& file);

}  // namespace miniacc
