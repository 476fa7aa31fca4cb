#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "core/dtype.h"

namespace miniacc {

/// What reader and writer of safetensors files share; private to the io layer.
inline constexpr std::string_view kSafetensorsMetadataKey = "__metadata__";

struct SafetensorsDType {
  std::string_view name;
  DType dtype;
};
inline constexpr std::array<SafetensorsDType, 12> kSafetensorsDTypes = {{
    {"F64", DType::kF64},
    {"F32", DType::kF32},
    {"F16", DType::kF16},
    {"BF16", DType::kBF16},
    {"F8_E4M3", DType::kF8E4M3},
    {"F8_E5M2", DType::kF8E5M2},
    {"I64", DType::kI64},
    {"I32", DType::kI32},
    {"I16", DType::kI16},
    {"I8", DType::kI8},
    {"U8", DType::kU8},
    {"BOOL", DType::kBool},
}};

inline std::optional<DType> parse_safetensors_dtype(std::string_view name) {
  for (const SafetensorsDType& type : kSafetensorsDTypes) {
    if (type.name == name) {
      return type.dtype;
    }
  }
  return std::nullopt;
}

/// Empty for GGUF block types.
inline std::optional<std::string_view> safetensors_dtype_name(DType dtype) {
  for (const SafetensorsDType& type : kSafetensorsDTypes) {
    if (type.dtype == dtype) {
      return type.name;
    }
  }
  return std::nullopt;
}

}  // namespace miniacc
