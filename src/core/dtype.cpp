#include "core/dtype.h"

#include <array>
#include <limits>

#include "core/error.h"

namespace miniacc {
namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  std::int64_t elements;
  std::size_t bytes;
};

// Block sizes and layouts of the GGUF types: ggml's block structs as described in the GGUF
// specification (Q4_0: f16 scale + 16 bytes; Q4_K: 2 f16 + 12 + 128; and so on).
constexpr std::array<DTypeInfo, 17> kInfos = {{
    {DType::kF64, "f64", 1, 8},
    {DType::kF32, "f32", 1, 4},
    {DType::kF16, "f16", 1, 2},
    {DType::kBF16, "bf16", 1, 2},
    {DType::kF8E4M3, "f8_e4m3", 1, 1},
    {DType::kF8E5M2, "f8_e5m2", 1, 1},
    {DType::kI64, "i64", 1, 8},
    {DType::kI32, "i32", 1, 4},
    {DType::kI16, "i16", 1, 2},
    {DType::kI8, "i8", 1, 1},
    {DType::kU8, "u8", 1, 1},
    {DType::kBool, "bool", 1, 1},
    {DType::kQ4_0, "q4_0", 32, 18},
    {DType::kQ8_0, "q8_0", 32, 34},
    {DType::kQ4_K, "q4_k", 256, 144},
    {DType::kQ5_K, "q5_k", 256, 176},
    {DType::kQ6_K, "q6_k", 256, 210},
}};

const DTypeInfo& info(DType dtype) {
  for (const DTypeInfo& entry : kInfos) {
    if (entry.dtype == dtype) {
      return entry;
    }
  }
  MINIACC_REQUIRE(false, "dtype: not in the table");
  return kInfos[0];
}

}  // namespace

std::string_view dtype_name(DType dtype) { return info(dtype).name; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (const DTypeInfo& entry : kInfos) {
    if (entry.name == name) {
      return entry.dtype;
    }
  }
  return std::nullopt;
}

std::int64_t block_elements(DType dtype) { return info(dtype).elements; }
std::size_t block_bytes(DType dtype) { return info(dtype).bytes; }
bool is_block_type(DType dtype) { return info(dtype).elements > 1; }

std::optional<std::size_t> storage_bytes(DType dtype, std::int64_t num_elements) {
  const DTypeInfo& entry = info(dtype);
  if (num_elements < 0 || num_elements % entry.elements != 0) {
    return std::nullopt;
  }
  const auto blocks = static_cast<std::size_t>(num_elements / entry.elements);
  if (blocks > std::numeric_limits<std::size_t>::max() / entry.bytes) {
    return std::nullopt;
  }
  return blocks * entry.bytes;
}

}  // namespace miniacc
