#pragma once

#include "kernels/op_context.h"

namespace miniacc::ops {

enum class AttentionMask { kNone, kCausal };

struct AttentionOptions {
  float scale = 1.0F;  ///< factor on q·k, usually 1/sqrt(head_dim)
  AttentionMask mask = AttentionMask::kNone;
  /// Arithmetic of the two products. kBF16 rounds q, k, v and the softmax numerators to bf16 and
  /// sums in f32; softmax statistics are always f32. kInt8 is not offered here.
  Precision precision = Precision::kF32;
};

/// out = softmax(scale · q·kᵀ) · v per head. Scratch memory grows linearly with the number of keys.
///   q    [q_rows, heads, head_dim]
///   k,v  [kv_rows, kv_heads, head_dim], heads a multiple of kv_heads: head h reads kv head
///        h / (heads / kv_heads)
///   out  [q_rows, heads, head_dim]; must not alias the inputs
/// All f32; rows may be strided, heads and head_dim are packed. kCausal needs q_rows == kv_rows:
/// row i sees rows 0..i. NaN or infinity in a value row may also reach earlier rows of its tile:
/// masked weights are zeros, and zero times infinity is NaN. Checks ctx.cancel between tiles.
/// Source: Vaswani et al. 2017, eq. 1.
void attention(OpContext& ctx, TensorView out, ConstTensorView q, ConstTensorView k,
               ConstTensorView v, const AttentionOptions& options);

}  // namespace miniacc::ops
