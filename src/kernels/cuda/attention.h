#pragma once

#include "kernels/attention_int8.h"
#include "kernels/op_context.h"

/// The arithmetics behind ops::attention on CUDA, contracts checked by it. Free of CUDA's headers.
namespace miniacc::ops::cuda {

/// How the mma.sync form of attention_int8 lays heads of more than 64 on a multiprocessor; smaller
/// heads always take the first. The results are the same bits.
enum class AttentionLayout {
  kOneBlock,       ///< one block of 8 warps, 16 queries a warp
  kTwoBlocks,      ///< two of them, with half the registers
  kTwoWideBlocks,  ///< two blocks of 4 warps, 32 queries a warp
  kShiftedHalves   ///< one block, half of whose warps are a product behind the others
};
inline constexpr AttentionLayout kAttentionLayouts[] = {
    AttentionLayout::kOneBlock, AttentionLayout::kTwoBlocks, AttentionLayout::kTwoWideBlocks,
    AttentionLayout::kShiftedHalves};

void attention_f32(OpContext& ctx, TensorView out, ConstTensorView q, ConstTensorView k,
                   ConstTensorView v, bool causal, float scale);
void attention_bf16(OpContext& ctx, TensorView out, ConstTensorView q, ConstTensorView k,
                    ConstTensorView v, bool causal, float scale);
/// The same for operands as the matrix units read them: q [heads, rows, dim], k and v [kv_heads,
/// kv_rows, dim] bf16, contiguous, dim = padded_head_dim(head_dim of out), zeros from there on.
void attention_bf16_rounded(OpContext& ctx, TensorView out, ConstTensorView q, ConstTensorView k,
                            ConstTensorView v, bool causal, float scale);

/// ops::attention_int8 for in.form == kMmaSync.
void attention_int8_mma(OpContext& ctx, TensorView out, const QuantizedAttention& in, float scale,
                        AttentionLayout layout);

}  // namespace miniacc::ops::cuda
