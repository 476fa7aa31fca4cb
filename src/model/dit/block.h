#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/op_context.h"
#include "model/dit/config.h"
#include "model/dit/rope_table.h"
#include "model/dit/weights.h"

namespace miniacc {

/// Activations of one block, allocated once and used by every block of a pass. Rows = S.
struct BlockActivations {
  BlockActivations(Device& device, const DitConfig& config, std::int64_t num_rows);
  /// Bytes that an object for `num_rows` rows takes.
  [[nodiscard]] static std::size_t size_bytes(const DitConfig& config, std::int64_t num_rows);

  Tensor y;           ///< [S, D] normalised input of a branch, then the branch's output
  Tensor qkv;         ///< [S, 3 · heads, d]
  Tensor attention;   ///< [S, heads, d]
  Tensor fc1;         ///< [min(S, kRowChunk), 2F]
  Tensor activation;  ///< [min(S, kRowChunk), F]
};

/// How rows are modulated: a table of AdaLN outputs and each row's line in it.
struct BlockModulation {
  ConstTensorView table;  ///< [num timesteps · 3, 6·D] f32
  ConstTensorView index;  ///< [S] i32
};

/// One transformer block, in place on h [S, D] f32. Source: spec model.md §3.4.
///   h += gate1·attention(norm1(h)·(1 + scale1) + shift1), then
///   h += gate2·mlp(norm2(h)·(1 + scale2) + shift2)
/// `attention_precision` is the arithmetic of q·k and of the sum over v.
void dit_block(OpContext& ctx, TensorView h, const DitBlockWeights& weights,
               const DitConfig& config, const BlockModulation& modulation, const RopeTable& rope,
               Precision attention_precision, BlockActivations& activations);

/// One refiner block, in place on h [L, D] f32: h += attention(norm1(h)), h += mlp(norm2(h)), no
/// rotary embedding, no modulation. Source: spec model.md §3.1, step 4.
void refiner_block(OpContext& ctx, TensorView h, const DitBlockWeights& weights,
                   const DitConfig& config, Precision attention_precision,
                   BlockActivations& activations);

}  // namespace miniacc
