#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/op_context.h"

namespace miniacc::ops {

enum class AttentionMask { kNone, kCausal };

/// The width that matrix instructions take heads of this size at: the smallest of 32, 64 and 128
/// that holds it; 0 where none does.
std::int64_t padded_head_dim(std::int64_t head_dim);

/// The widest heads that attention() takes there in this arithmetic.
std::int64_t max_head_dim(DeviceKind device, Precision precision);

/// The form that attention without a mask over heads of `head_dim` channels is computed in on
/// `device`, as reports name it: "f32", "bf16 cpu", "int8 cpu", or on CUDA by the matrix
/// instruction, "bf16 mma.sync", "int8 mma.sync".
std::string_view attention_form(DeviceId device, Precision precision, std::int64_t head_dim);

struct AttentionOptions {
  float scale = 1.0F;  ///< factor on q·k, usually 1/sqrt(head_dim)
  AttentionMask mask = AttentionMask::kNone;
  /// Arithmetic of the two products. kBF16 rounds q, k, v and the softmax numerators to bf16 and
  /// sums in f32; softmax statistics are always f32. kInt8 is quantize_attention followed by
  /// attention_int8 (attention_int8.h): no mask, head_dim up to 128, InternalError otherwise.
  Precision precision = Precision::kF32;
};

/// out = softmax(scale · q·kᵀ) · v per head. Scratch memory grows linearly with the number of keys.
///   q    [q_rows, heads, head_dim]
///   k,v  [kv_rows, kv_heads, head_dim], heads a multiple of kv_heads: head h reads kv head
///        h / (heads / kv_heads)
///   out  [q_rows, heads, head_dim]; must not alias the inputs
/// All f32; rows may be strided, heads and head_dim are packed. kCausal needs q_rows == kv_rows:
/// row i sees rows 0..i. NaN or infinity in a value row may also reach earlier rows of its tile:
/// masked weights are zeros, and zero times infinity is NaN. Checks ctx.cancel between tiles (CUDA:
/// before the launch). On CUDA head_dim is at most 256 in f32 and 128 in bf16; InternalError names
/// another.
/// Source: Vaswani et al. 2017, eq. 1.
void attention(OpContext& ctx, TensorView out, ConstTensorView q, ConstTensorView k,
               ConstTensorView v, const AttentionOptions& options);

}  // namespace miniacc::ops
