#include "model/text_encoder/encode_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/copy.h"
#include "kernels/norm.h"
#include "kernels/residual.h"
#include "kernels/rope.h"
#include "model/common/finite.h"
#include "model/common/row_chunks.h"
#include "model/text_encoder/mrope.h"

namespace miniacc {
namespace {

/// One decoder layer, as views; fields carry the checkpoint's names.
struct LayerWeights {
  ConstTensorView input_layernorm;           ///< [hidden] f32
  WeightMatrix q_proj;                       ///< [heads · d, hidden]
  WeightMatrix k_proj;                       ///< [kv heads · d, hidden]
  WeightMatrix v_proj;                       ///< [kv heads · d, hidden]
  WeightMatrix o_proj;                       ///< [hidden, heads · d]
  ConstTensorView q_norm;                    ///< [d] f32
  ConstTensorView k_norm;                    ///< [d] f32
  ConstTensorView post_attention_layernorm;  ///< [hidden] f32
  WeightMatrix gate_proj;                    ///< [ffn, hidden]
  WeightMatrix up_proj;                      ///< [ffn, hidden]
  WeightMatrix down_proj;                    ///< [hidden, ffn]
};

/// A layer of text_layer_stack().
LayerWeights layer_weights(const LayerView& layer) {
  const std::vector<WeightMatrix>& tensors = layer.tensors;
  MINIACC_REQUIRE(tensors.size() == 11, "encode_text: layers of text_layer_stack()");
  return {.input_layernorm = tensors[0].values,
          .q_proj = tensors[1],
          .k_proj = tensors[2],
          .v_proj = tensors[3],
          .o_proj = tensors[4],
          .q_norm = tensors[5].values,
          .k_norm = tensors[6].values,
          .post_attention_layernorm = tensors[7].values,
          .gate_proj = tensors[8],
          .up_proj = tensors[9],
          .down_proj = tensors[10]};
}

/// Activations of one layer, used by every layer. T rows.
struct LayerActivations {
  LayerActivations(Device& device, const TextEncoderConfig& config, std::int64_t rows)
      : y(empty_tensor(device, {rows, config.hidden_size})),
        q(empty_tensor(device, {rows, config.num_heads, config.head_dim})),
        k(empty_tensor(device, {rows, config.num_kv_heads, config.head_dim})),
        v(empty_tensor(device, {rows, config.num_kv_heads, config.head_dim})),
        attention(empty_tensor(device, {rows, config.num_heads, config.head_dim})),
        gate(empty_tensor(device, {std::min(rows, kRowChunk), config.ffn_hidden_size})),
        up(empty_tensor(device, {std::min(rows, kRowChunk), config.ffn_hidden_size})),
        product(empty_tensor(device, {std::min(rows, kRowChunk), config.ffn_hidden_size})) {}

  Tensor y;          ///< [T, hidden] normalised input of a branch, then its output
  Tensor q;          ///< [T, heads, d]
  Tensor k;          ///< [T, kv heads, d]
  Tensor v;          ///< [T, kv heads, d]
  Tensor attention;  ///< [T, heads, d]
  Tensor gate;       ///< [chunk, ffn], as are `up` and `product`
  Tensor up;
  Tensor product;
};

/// A [rows, heads, d] tensor as the [rows, heads · d] matrix that linear layers see.
TensorView as_matrix(Tensor& tensor) {
  const Shape& shape = tensor.shape();
  return tensor.view().reshape({shape[0], shape[1] * shape[2]});
}

/// y ← o_proj(causal attention(y)).
void self_attention(OpContext& ctx, const TextEncoderConfig& config, const LayerWeights& weights,
                    const MropeTable& rope, Precision precision, LayerActivations& activations) {
  const TensorView y = activations.y.view();
  const TensorView q = activations.q.view();
  const TensorView k = activations.k.view();
  linear_by_rows(ctx, as_matrix(activations.q), y, weights.q_proj);
  linear_by_rows(ctx, as_matrix(activations.k), y, weights.k_proj);
  linear_by_rows(ctx, as_matrix(activations.v), y, weights.v_proj);
  ops::rms_norm(ctx, q, q, weights.q_norm, config.rms_norm_eps);
  ops::rms_norm(ctx, k, k, weights.k_norm, config.rms_norm_eps);
  ops::apply_rope(ctx, q, rope.cos.view(), rope.sin.view());
  ops::apply_rope(ctx, k, rope.cos.view(), rope.sin.view());
  const ops::AttentionOptions options = {
      .scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim)),
      .mask = ops::AttentionMask::kCausal,
      .precision = precision == Precision::kF32 ? Precision::kF32 : Precision::kBF16};
  ops::attention(ctx, activations.attention.view(), q, k, activations.v.view(), options);
  linear_by_rows(ctx, y, as_matrix(activations.attention), weights.o_proj);
}

/// y ← down_proj(silu(gate_proj(y))·up_proj(y)), a chunk of rows at a time.
void mlp(OpContext& ctx, const LayerWeights& weights, LayerActivations& activations) {
  for_row_chunks(activations.y.shape()[0], [&](std::int64_t first, std::int64_t count) {
    ctx.check_cancelled();
    const TensorView y = activations.y.view().narrow(0, first, count);
    const TensorView gate = activations.gate.view().narrow(0, 0, count);
    const TensorView up = activations.up.view().narrow(0, 0, count);
    const TensorView product = activations.product.view().narrow(0, 0, count);
    ops::linear(ctx, gate, y, weights.gate_proj);
    ops::linear(ctx, up, y, weights.up_proj);
    ops::silu_mul(ctx, product, gate, up);
    ops::linear(ctx, y, product, weights.down_proj);
  });
}

void decoder_layer(OpContext& ctx, TensorView h, const TextEncoderConfig& config,
                   const LayerWeights& weights, const MropeTable& rope, Precision precision,
                   LayerActivations& activations) {
  const TensorView y = activations.y.view();
  ops::rms_norm(ctx, y, h, weights.input_layernorm, config.rms_norm_eps);
  self_attention(ctx, config, weights, rope, precision, activations);
  ops::add(ctx, h, y);

  ops::rms_norm(ctx, y, h, weights.post_attention_layernorm, config.rms_norm_eps);
  mlp(ctx, weights, activations);
  ops::add(ctx, h, y);
}

/// [T, hidden]: the embedding row of every id, each distinct row read once.
Result<Tensor> embed(OpContext& ctx, WeightSource& weights, const TextEncoderConfig& config,
                     std::span<const std::int32_t> ids) {
  std::map<std::int32_t, Tensor> rows;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= config.vocab_size) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("text encoder: token id {} has no row in embed_tokens.weight, which "
                              "has {}: tokenizer and weights do not belong together",
                              id, config.vocab_size));
    }
    if (!rows.contains(id)) {
      MINIACC_ASSIGN(Tensor row, weights.load_rows("embed_tokens.weight", id, 1, ctx.device));
      rows.emplace(id, std::move(row));
    }
  }
  Tensor h = empty_tensor(ctx.device, {static_cast<std::int64_t>(ids.size()), config.hidden_size});
  std::int64_t row = 0;
  for (const std::int32_t id : ids) {
    ops::copy(ctx, h.view().narrow(0, row++, 1), std::as_const(rows.at(id)).view());
  }
  return h;
}

/// Runs of text and vision blocks, as positions are counted.
std::vector<PresentationRun> presentation_runs(std::span<const VisualSpan> visuals,
                                               std::int64_t rows) {
  std::vector<PresentationRun> runs;
  std::int64_t done = 0;
  for (const VisualSpan& visual : visuals) {
    MINIACC_REQUIRE(visual.first >= done && visual.grid.num_tokens() > 0 &&
                        visual.first <= rows - visual.grid.num_tokens(),
                    "encode_text: vision blocks follow each other inside the presentation");
    runs.push_back({.num_text_rows = visual.first - done});
    runs.push_back(
        {.grid_height = visual.grid.token_rows(), .grid_width = visual.grid.token_columns()});
    done = visual.first + visual.grid.num_tokens();
  }
  runs.push_back({.num_text_rows = rows - done});
  return runs;
}

void check_features(const TextEncoderConfig& config, std::span<const VisualSpan> visuals) {
  for (const VisualSpan& visual : visuals) {
    MINIACC_REQUIRE(visual.features != nullptr, "encode_text: a vision block has features");
    const Shape wanted = {visual.grid.num_tokens(), config.hidden_size};
    MINIACC_REQUIRE(visual.features->merged.shape() == wanted,
                    "encode_text: features are [tokens, hidden]");
    for (const Tensor& features : visual.features->deepstack) {
      MINIACC_REQUIRE(features.shape() == wanted,
                      "encode_text: DeepStack features are [tokens, hidden]");
    }
  }
}

void replace_pads(OpContext& ctx, TensorView h, std::span<const VisualSpan> visuals) {
  for (const VisualSpan& visual : visuals) {
    ops::copy(ctx, h.narrow(0, visual.first, visual.grid.num_tokens()),
              visual.features->merged.view());
  }
}

/// h[pad rows] += deepstack[layer].
void add_deepstack(OpContext& ctx, TensorView h, std::span<const VisualSpan> visuals,
                   std::int64_t layer) {
  for (const VisualSpan& visual : visuals) {
    if (layer < static_cast<std::int64_t>(visual.features->deepstack.size())) {
      const Placed features =
          on_device(ctx, visual.features->deepstack[static_cast<std::size_t>(layer)].view());
      ops::add(ctx, h.narrow(0, visual.first, visual.grid.num_tokens()), features.view);
    }
  }
}

}  // namespace

LayerStack text_layer_stack(const TextEncoderConfig& config, Precision precision) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t attention = config.num_heads * config.head_dim;
  const std::int64_t kv = config.num_kv_heads * config.head_dim;
  const std::int64_t ffn = config.ffn_hidden_size;
  return {.prefix = "layers.",
          .count = config.num_used_layers,
          .items = {{"input_layernorm.weight", {hidden}, {}},
                    {"self_attn.q_proj.weight", {attention, hidden}, precision},
                    {"self_attn.k_proj.weight", {kv, hidden}, precision},
                    {"self_attn.v_proj.weight", {kv, hidden}, precision},
                    {"self_attn.o_proj.weight", {hidden, attention}, precision},
                    {"self_attn.q_norm.weight", {config.head_dim}, {}},
                    {"self_attn.k_norm.weight", {config.head_dim}, {}},
                    {"post_attention_layernorm.weight", {hidden}, {}},
                    {"mlp.gate_proj.weight", {ffn, hidden}, precision},
                    {"mlp.up_proj.weight", {ffn, hidden}, precision},
                    {"mlp.down_proj.weight", {hidden, ffn}, precision}}};
}

Result<Tensor> encode_text(OpContext& ctx, WeightSource& weights, const TextEncoderConfig& config,
                           std::span<const std::int32_t> ids, std::span<const VisualSpan> visuals,
                           Precision precision, const LayerProgress& progress,
                           LayerSource* layers) {
  MINIACC_REQUIRE(!ids.empty(), "encode_text: there is at least one token id");
  const auto rows = static_cast<std::int64_t>(ids.size());
  const std::vector<PresentationRun> runs = presentation_runs(visuals, rows);
  check_features(config, visuals);
  MINIACC_ASSIGN(Tensor h, embed(ctx, weights, config, ids));
  replace_pads(ctx, h.view(), visuals);
  const MropeTable rope =
      make_mrope_table(ctx.device, mrope_positions(runs), config.mrope_section, config.rope_theta);
  LayerActivations activations(ctx.device, config, rows);
  CachedLayers uncached(weights, text_layer_stack(config, precision), ctx.device, 0);
  LayerSource& source = layers != nullptr ? *layers : uncached;
  for (std::int64_t i = 0; i < config.num_used_layers; ++i) {
    ctx.check_cancelled();
    MINIACC_ASSIGN(const LayerView* layer, source.acquire(i, ctx));
    // What stands behind layer j is part of the input of the next one: the state that conditions
    // is taken before it, should it be the last.
    if (i > 0) {
      add_deepstack(ctx, h.view(), visuals, i - 1);
    }
    decoder_layer(ctx, h.view(), config, layer_weights(*layer), rope, precision, activations);
    if (!all_finite(ctx, h.view())) {
      return fail(ErrorCode::kInternal,
                  fmt::format("non-finite text: NaN or infinity in the hidden state after text "
                              "encoder layer {} of {}",
                              i, config.num_used_layers));
    }
    if (progress) {
      progress(i + 1, config.num_used_layers);
    }
  }
  return h;
}

Result<Tensor> encode_text(OpContext& ctx, WeightSource& weights, const TextEncoderConfig& config,
                           std::span<const std::int32_t> ids, Precision precision,
                           const LayerProgress& progress) {
  return encode_text(ctx, weights, config, ids, {}, precision, progress);
}

}  // namespace miniacc
