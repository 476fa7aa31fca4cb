#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/attention_int8.h"
#include "kernels/op_context.h"
#include "model/dit/config.h"
#include "model/dit/rope_table.h"
#include "model/dit/weights.h"

namespace miniacc {

/// The arithmetics of a block: of its four linear layers, and of attention (q·k and the sum over
/// v).
struct BlockPrecision {
  Precision linear = Precision::kF32;
  Precision attention = Precision::kF32;
};

/// Attention where nothing else is asked for: bf16, f32 in the f32 reference.
constexpr Precision default_attention(Precision linear) {
  return linear == Precision::kF32 ? Precision::kF32 : Precision::kBF16;
}

/// Activations of one block, allocated once and used by every block of a pass. Rows = S, chunk =
/// min(S, row_chunk of the device).
struct BlockActivations {
  BlockActivations(Device& device, const DitConfig& config, std::int64_t num_rows,
                   BlockPrecision precision);
  /// Bytes that an object for `num_rows` rows takes on a device of that kind, each buffer rounded
  /// up as CUDA does it.
  [[nodiscard]] static std::size_t size_bytes(const DitConfig& config, std::int64_t num_rows,
                                              BlockPrecision precision, DeviceKind device);
  /// Of what it holds.
  [[nodiscard]] std::size_t size_bytes() const;

  Precision attention_precision;
  Tensor y;           ///< [chunk, D] normalised input of a branch, then the branch's output
  Tensor qkv;         ///< [S, 3 · heads, d]; behind int8 attention its q part holds the result
  Tensor fc1;         ///< [chunk, 2F]
  Tensor activation;  ///< [chunk, F] fc2's input; empty where it is written over fc1's gate half
  Tensor attention;   ///< [S, heads, d]; empty with int8 attention
  std::optional<ops::QuantizedAttention> quantized;  ///< with int8 attention only
  Tensor codes;       ///< [chunk · max(D, heads · d, F)] i8, int8 linear layers only
  Tensor code_scale;  ///< [chunk] of the rows in codes
};

/// How rows are modulated: a table of AdaLN outputs and each row's line in it.
struct BlockModulation {
  ConstTensorView table;  ///< [num timesteps · 3, 6·D] f32
  ConstTensorView index;  ///< [S] i32
};

/// One transformer block, in place on h [S, D] f32. Source: spec model.md §3.4.
///   h += gate1·attention(norm1(h)·(1 + scale1) + shift1), then
///   h += gate2·mlp(norm2(h)·(1 + scale2) + shift2)
/// i8 matrices get their activations from the fused producers of kernels/fused.h, with the bits of
/// ops::linear behind the unfused ops on the CPU. A matrix with side products, which need its
/// input as it is, or of a shape that the producers do not take, gets it from the unfused ops.
void dit_block(OpContext& ctx, TensorView h, const DitBlockWeights& weights,
               const DitConfig& config, const BlockModulation& modulation, const RopeTable& rope,
               BlockActivations& activations);

/// One refiner block, in place on h [L, D] f32: h += attention(norm1(h)), h += mlp(norm2(h)), no
/// rotary embedding, no modulation. Source: spec model.md §3.1, step 4.
void refiner_block(OpContext& ctx, TensorView h, const DitBlockWeights& weights,
                   const DitConfig& config, BlockActivations& activations);

}  // namespace miniacc
