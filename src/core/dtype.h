#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace miniacc {

/// Element types of tensors in memory and in checkpoint files. The last group are GGUF block types:
/// a run of block_elements() values of one row shares one block of block_bytes() bytes.
enum class DType {
  kF64,
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kI64,
  kI32,
  kI16,
  kI8,
  kU8,
  kBool,
  kQ4_0,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};

/// Lower-case name as users write it: "f32", "bf16", "f8_e4m3", "q4_k", ...
std::string_view dtype_name(DType dtype);
/// Inverse of dtype_name; empty for an unknown name.
std::optional<DType> parse_dtype(std::string_view name);

/// Values a block holds: 1 for plain types, 32 or 256 for GGUF block types.
std::int64_t block_elements(DType dtype);
/// Bytes of one block (of one value for plain types).
std::size_t block_bytes(DType dtype);
/// True for the GGUF block types.
bool is_block_type(DType dtype);

/// Bytes of `num_elements` values; empty on overflow or when a block type's values do not fill
/// whole blocks.
std::optional<std::size_t> storage_bytes(DType dtype, std::int64_t num_elements);

}  // namespace miniacc
