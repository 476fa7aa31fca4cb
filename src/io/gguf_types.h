#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/dtype.h"

namespace miniacc {

/// Numbers of the GGUF format that reader and writer share; private to the io layer.
inline constexpr std::string_view kGgufMagic = "GGUF";
inline constexpr std::uint32_t kGgufVersion = 3;
inline constexpr std::uint32_t kGgufDefaultAlignment = 32;
/// ggml's own limit; files with more dimensions are read all the same, ours are written folded.
inline constexpr int kGgufMaxDims = 4;
inline constexpr std::string_view kGgufOrigShapePrefix = "comfy.gguf.orig_shape.";

enum class GgufValueType : std::uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

/// The DType of a ggml type number; empty for types MiniAcc cannot read.
[[nodiscard]] std::optional<DType> dtype_of_ggml_type(std::uint32_t type);
/// The ggml type number of a DType; empty for types GGUF has no number for.
[[nodiscard]] std::optional<std::uint32_t> ggml_type_of_dtype(DType dtype);
/// ggml's lower-case name, e.g. "iq2_xs"; "type 77" for an unknown number.
[[nodiscard]] std::string ggml_type_name(std::uint32_t type);

}  // namespace miniacc
