#pragma once

#include "kernels/op_context.h"

namespace miniacc::ops {

/// Rotary embedding in place, half-split pairing over the first 2·n channels of every head:
///   y[i] = x[i]·cos[i] - x[i+n]·sin[i],  y[i+n] = x[i+n]·cos[i] + x[i]·sin[i],  i < n;
/// channels from 2·n on pass through.
///   x         [rows, heads, head_dim] f32; rows and heads may be strided, head_dim contiguous
///   cos, sin  [rows, n] f32, contiguous, 2·n <= head_dim
/// Source: Su et al. 2021 with the half-split pairing of GPT-NeoX; spec model.md §3.3.
void apply_rope(OpContext& ctx, TensorView x, ConstTensorView cos, ConstTensorView sin);

}  // namespace miniacc::ops
