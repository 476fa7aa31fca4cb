#include "model/dit/block.h"

#include <algorithm>
#include <cmath>

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/norm.h"
#include "kernels/residual.h"
#include "kernels/rope.h"
#include "model/common/row_chunks.h"

namespace miniacc {
namespace {

/// activations.y ← out_proj(attention(activations.y)); `rope` may be null.
void self_attention(OpContext& ctx, const DitBlockWeights& weights, const DitConfig& config,
                    const RopeTable* rope, Precision precision, BlockActivations& activations) {
  const std::int64_t rows = activations.y.shape()[0];
  const std::int64_t heads = config.num_heads;
  const TensorView y = activations.y.view();
  const TensorView qkv = activations.qkv.view();  // [S, 3 · heads, d]
  linear_by_rows(ctx, qkv.reshape({rows, 3 * config.attention_size()}), y, weights.qkv_proj);
  const TensorView q = qkv.narrow(1, 0, heads);
  const TensorView k = qkv.narrow(1, heads, heads);
  const TensorView v = qkv.narrow(1, 2 * heads, heads);
  ops::rms_norm(ctx, q, q, weights.q_norm, config.qk_norm_eps);
  ops::rms_norm(ctx, k, k, weights.k_norm, config.qk_norm_eps);
  if (rope != nullptr) {
    ops::apply_rope(ctx, qkv.narrow(1, 0, 2 * heads), rope->cos.view(), rope->sin.view());
  }
  const ops::AttentionOptions options = {
      .scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim)),
      .mask = ops::AttentionMask::kNone,
      .precision = precision};
  const TensorView attention = activations.attention.view();  // [S, heads, d]
  ops::attention(ctx, attention, q, k, v, options);
  linear_by_rows(ctx, y, attention.reshape({rows, config.attention_size()}), weights.out_proj);
}

/// activations.y ← fc2(silu(gate)·value), [gate | value] = fc1(activations.y), a chunk of rows at a
/// time, so that the wide inner activation stays small.
void mlp(OpContext& ctx, const DitBlockWeights& weights, const DitConfig& config,
         BlockActivations& activations) {
  const std::int64_t ffn = config.ffn_hidden_size;
  for_row_chunks(activations.y.shape()[0], [&](std::int64_t first, std::int64_t count) {
    ctx.check_cancelled();
    const TensorView y = activations.y.view().narrow(0, first, count);
    const TensorView fc1 = activations.fc1.view().narrow(0, 0, count);  // [count, 2F]
    const TensorView activation = activations.activation.view().narrow(0, 0, count);
    ops::linear(ctx, fc1, y, weights.fc1);
    ops::silu_mul(ctx, activation, fc1.narrow(1, 0, ffn), fc1.narrow(1, ffn, ffn));
    ops::linear(ctx, y, activation, weights.fc2);
  });
}

}  // namespace

BlockActivations::BlockActivations(Device& device, const DitConfig& config, std::int64_t num_rows)
    : y(empty_tensor(device, {num_rows, config.hidden_size})),
      qkv(empty_tensor(device, {num_rows, 3 * config.num_heads, config.head_dim})),
      attention(empty_tensor(device, {num_rows, config.num_heads, config.head_dim})),
      fc1(empty_tensor(device, {std::min(num_rows, kRowChunk), 2 * config.ffn_hidden_size})),
      activation(empty_tensor(device, {std::min(num_rows, kRowChunk), config.ffn_hidden_size})) {}

std::size_t BlockActivations::size_bytes(const DitConfig& config, std::int64_t num_rows) {
  const std::int64_t values = num_rows * (config.hidden_size + 4 * config.attention_size()) +
                              std::min(num_rows, kRowChunk) * 3 * config.ffn_hidden_size;
  return static_cast<std::size_t>(values) * sizeof(float);
}

void dit_block(OpContext& ctx, TensorView h, const DitBlockWeights& weights,
               const DitConfig& config, const BlockModulation& modulation, const RopeTable& rope,
               Precision attention_precision, BlockActivations& activations) {
  const std::int64_t hidden = config.hidden_size;
  const auto vector = [&](std::int64_t position) {
    return modulation.table.narrow(1, position * hidden, hidden);
  };
  const TensorView y = activations.y.view();
  ops::modulated_rms_norm(ctx, y, h, weights.norm1, vector(0), vector(1), modulation.index,
                          config.norm_eps);
  self_attention(ctx, weights, config, &rope, attention_precision, activations);
  ops::gated_add(ctx, h, y, vector(2), modulation.index);

  ops::modulated_rms_norm(ctx, y, h, weights.norm2, vector(3), vector(4), modulation.index,
                          config.norm_eps);
  mlp(ctx, weights, config, activations);
  ops::gated_add(ctx, h, y, vector(5), modulation.index);
}

void refiner_block(OpContext& ctx, TensorView h, const DitBlockWeights& weights,
                   const DitConfig& config, Precision attention_precision,
                   BlockActivations& activations) {
  const TensorView y = activations.y.view();
  ops::rms_norm(ctx, y, h, weights.norm1, config.norm_eps);
  self_attention(ctx, weights, config, nullptr, attention_precision, activations);
  ops::add(ctx, h, y);

  ops::rms_norm(ctx, y, h, weights.norm2, config.norm_eps);
  mlp(ctx, weights, config, activations);
  ops::add(ctx, h, y);
}

}  // namespace miniacc
