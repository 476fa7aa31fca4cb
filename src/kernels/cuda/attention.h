#pragma once

#include "kernels/op_context.h"

/// The arithmetics behind ops::attention on CUDA, contracts checked by it. Free of CUDA's headers.
namespace miniacc::ops::cuda {

void attention_f32(OpContext& ctx, TensorView out, ConstTensorView q, ConstTensorView k,
                   ConstTensorView v, bool causal, float scale);
void attention_bf16(OpContext& ctx, TensorView out, ConstTensorView q, ConstTensorView k,
                    ConstTensorView v, bool causal, float scale);

}  // namespace miniacc::ops::cuda
