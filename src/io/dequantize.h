#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.h"

namespace miniacc {

/// `count` values stored as `dtype` (plain or GGUF block type) to float. `bytes` holds exactly
/// storage_bytes(dtype, count) bytes; no alignment is assumed. Integers convert by value, f64 and
/// i64 round to nearest, bool gives 0 or 1. Block types follow ggml's reference dequantisation bit
/// for bit (block layouts: GGUF specification, "tensor types"). Throws InternalError when the sizes
/// disagree.
void dequantize(DType dtype, std::span<const std::byte> bytes, std::int64_t count, float* out);

/// Float values to storage of `dtype`: f32, f16, bf16, f8_e4m3, q8_0, q4_0, q4_k or i8. `out` holds
/// exactly storage_bytes(dtype, values.size()) bytes. For i8 and block types the values are finite
/// and at most 65504 in magnitude. Throws InternalError when that, the sizes or the dtype are
/// wrong.
///   f16, bf16, f8_e4m3, i8  round to nearest, ties to even; f8_e4m3 and i8 saturate
///   q8_0, q4_0              ggml's reference quantisation, bit for bit (it rounds ties away from
///   0) q4_k                    a search of our own for scale and minimum of each 32 values: valid
///                           blocks, not ggml's bits. Relative error on normally distributed values
///                           0.073 (q4_0: 0.086)
void quantize(DType dtype, std::span<const float> values, std::span<std::byte> out);

}  // namespace miniacc
