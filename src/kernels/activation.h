#pragma once

#include "kernels/op_context.h"

namespace miniacc::ops {

/// out = silu(gate) * value, silu(x) = x / (1 + exp(-x)).
///   gate, value  [rows, ffn] f32; rows may be strided (two halves of one fc1 output)
///   out          [rows, ffn] f32; rows may be strided. May be gate or value itself, and else must
///                not alias them
/// Source: Shazeer 2020, SwiGLU.
void silu_mul(OpContext& ctx, TensorView out, ConstTensorView gate, ConstTensorView value);

/// out = silu(x), elementwise; x, out f32, contiguous, may alias.
void silu(OpContext& ctx, TensorView out, ConstTensorView x);

}  // namespace miniacc::ops
