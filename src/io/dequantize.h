#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.h"

namespace miniacc {

/// `count` values stored as `dtype` (plain or GGUF block type) to float. `bytes` holds exactly
/// storage_bytes(dtype, count) bytes; no alignment is assumed. Integers convert by value.
void dequantize(DType dtype, std::span<const std::byte> bytes, std::int64_t count, float* out);

/// Float values to storage of `dtype`: f32, f16, bf16, f8_e4m3, q8_0, q4_0, q4_k or i8 (by
/// rounding). Rounds to nearest even. `out` holds exactly storage_bytes(dtype, values.size())
/// bytes.
void quantize(DType dtype, std::span<const float> values, std::span<std::byte> out);

}  // namespace miniacc
