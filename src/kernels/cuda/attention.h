#pragma once

#include "kernels/op_context.h"

/// The arithmetics behind ops::attention on CUDA, contracts checked by it. Free of CUDA's headers.
namespace miniacc::ops::cuda {

void attention_f32(OpContext& ctx, TensorView out, ConstTensorView q, ConstTensorView k,
                   ConstTensorView v, bool causal, float scale);
void attention_bf16(OpContext& ctx, TensorView out, ConstTensorView q, ConstTensorView k,
                    ConstTensorView v, bool causal, float scale);
/// The same for operands as the matrix units read them: q [heads, rows, dim], k and v [kv_heads,
/// kv_rows, dim] bf16, contiguous, dim = padded_head_dim(head_dim of out), zeros from there on.
void attention_bf16_rounded(OpContext& ctx, TensorView out, ConstTensorView q, ConstTensorView k,
                            ConstTensorView v, bool causal, float scale);

}  // namespace miniacc::ops::cuda
