#include "model/dit/config.h"

#include <fmt/format.h>

#include "model/common/shape_check.h"

namespace miniacc {
namespace {

constexpr std::string_view kComponent = "transformer";

std::int64_t count_layers(const WeightSource& weights, std::string_view prefix) {
  std::int64_t count = 0;
  while (weights.has(fmt::format("{}.{}.norm1.weight", prefix, count))) {
    ++count;
  }
  return count;
}

Status check_block(const WeightSource& weights, const DitConfig& config,
                   const std::string& prefix) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t inner = config.attention_size();
  const auto check = [&](const char* tail, const Shape& wanted) {
    return check_shape(weights, kComponent, prefix + tail, wanted);
  };
  MINIACC_RETURN_IF_ERROR(check(".norm1.weight", {hidden}));
  MINIACC_RETURN_IF_ERROR(check(".norm2.weight", {hidden}));
  MINIACC_RETURN_IF_ERROR(check(".attn.qkv_proj.weight", {3 * inner, hidden}));
  MINIACC_RETURN_IF_ERROR(check(".attn.q_norm.weight", {config.head_dim}));
  MINIACC_RETURN_IF_ERROR(check(".attn.k_norm.weight", {config.head_dim}));
  MINIACC_RETURN_IF_ERROR(check(".attn.out_proj.weight", {hidden, inner}));
  MINIACC_RETURN_IF_ERROR(check(".mlp.fc1.weight", {2 * config.ffn_hidden_size, hidden}));
  return check(".mlp.fc2.weight", {hidden, config.ffn_hidden_size});
}

Status check_linear(const WeightSource& weights, const std::string& prefix, std::int64_t rows,
                    std::int64_t columns) {
  MINIACC_RETURN_IF_ERROR(check_shape(weights, kComponent, prefix + ".weight", {rows, columns}));
  return check_shape(weights, kComponent, prefix + ".bias", {rows});
}

Status check_all(const WeightSource& weights, const DitConfig& config) {
  const std::int64_t hidden = config.hidden_size;
  MINIACC_RETURN_IF_ERROR(
      check_linear(weights, "video_patch_proj", hidden, config.video_row_width));
  MINIACC_RETURN_IF_ERROR(
      check_linear(weights, "audio_patch_proj", hidden, config.audio_row_width));
  MINIACC_RETURN_IF_ERROR(check_linear(weights, "condition_proj", hidden, config.text_dim));
  if (!config.has_curve_table()) {
    MINIACC_RETURN_IF_ERROR(check_linear(weights, "time_embedder.proj_in", config.time_hidden_size,
                                         config.time_input_dim));
    MINIACC_RETURN_IF_ERROR(check_linear(weights, "time_embedder.proj_out", config.time_embed_dim,
                                         config.time_hidden_size));
  }
  for (std::int64_t i = 0; i < config.num_refiner_layers; ++i) {
    MINIACC_RETURN_IF_ERROR(
        check_block(weights, config, fmt::format("token_refiner.blocks.{}", i)));
  }
  MINIACC_RETURN_IF_ERROR(
      check_shape(weights, kComponent, "token_refiner.final_norm.weight", {hidden}));
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    const std::string prefix = fmt::format("blocks.{}", i);
    MINIACC_RETURN_IF_ERROR(check_block(weights, config, prefix));
    MINIACC_RETURN_IF_ERROR(check_linear(weights, prefix + ".adaln_proj.linear",
                                         config.modulation_size(), config.time_embed_dim));
  }
  MINIACC_RETURN_IF_ERROR(check_shape(weights, kComponent, "final_layer.norm.weight", {hidden}));
  MINIACC_RETURN_IF_ERROR(
      check_linear(weights, "final_layer.adaln_proj.linear", 2 * hidden, config.time_embed_dim));
  MINIACC_RETURN_IF_ERROR(
      check_linear(weights, "final_layer.video_out", config.video_row_width, hidden));
  return check_linear(weights, "final_layer.audio_out", config.audio_row_width, hidden);
}

/// Variants that would load and run, and give wrong pictures without their extra tensors.
Status refuse_variants(const WeightSource& weights) {
  if (weights.has("blocks.0.attn.to_gate_compress.weight")) {
    return fail(ErrorCode::kUnsupported,
                "transformer: blocks.0.attn.to_gate_compress.weight is there, so this checkpoint "
                "needs sparse attention, which is not built in");
  }
  if (weights.has("adaln_basis.weight")) {
    return fail(ErrorCode::kUnsupported,
                "transformer: adaln_basis.weight is there, and the rank-reduced AdaLN form with a "
                "basis is not built in");
  }
  return {};
}

Status read_time_dimensions(const WeightSource& weights, DitConfig& config) {
  if (weights.has("adaln_t_table")) {
    MINIACC_ASSIGN(const Shape table, shape_of_rank(weights, kComponent, "adaln_t_table", 2));
    if (table[0] < 2) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("transformer: adaln_t_table is {}, wanted at least two rows",
                              table.to_string()));
    }
    config.curve_rows = table[0];
    config.time_embed_dim = table[1];
    return {};
  }
  MINIACC_ASSIGN(const Shape proj_in,
                 shape_of_rank(weights, kComponent, "time_embedder.proj_in.weight", 2));
  MINIACC_ASSIGN(const Shape proj_out,
                 shape_of_rank(weights, kComponent, "time_embedder.proj_out.weight", 2));
  if (proj_in[1] % 2 != 0) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("transformer: time_embedder.proj_in.weight is {}, wanted an even "
                            "number of columns (cosines and sines)",
                            proj_in.to_string()));
  }
  config.time_hidden_size = proj_in[0];
  config.time_input_dim = proj_in[1];
  config.time_embed_dim = proj_out[0];
  return {};
}

Status read_block_dimensions(const WeightSource& weights, DitConfig& config) {
  config.num_layers = count_layers(weights, "blocks");
  config.num_refiner_layers = count_layers(weights, "token_refiner.blocks");
  if (config.num_layers == 0) {
    return fail(ErrorCode::kInvalidInput,
                "transformer: there is no blocks.0.norm1.weight, wanted at least one block");
  }
  if (config.num_refiner_layers == 0) {
    return fail(ErrorCode::kInvalidInput,
                "transformer: there is no token_refiner.blocks.0.norm1.weight, wanted at least one "
                "refiner block");
  }
  MINIACC_ASSIGN(const Shape q_norm,
                 shape_of_rank(weights, kComponent, "blocks.0.attn.q_norm.weight", 1));
  MINIACC_ASSIGN(const Shape qkv,
                 shape_of_rank(weights, kComponent, "blocks.0.attn.qkv_proj.weight", 2));
  MINIACC_ASSIGN(const Shape fc1, shape_of_rank(weights, kComponent, "blocks.0.mlp.fc1.weight", 2));
  config.head_dim = q_norm[0];
  // Divided stepwise: 3 · head_dim could overflow for a hostile header.
  if (qkv[0] % 3 != 0 || (qkv[0] / 3) % config.head_dim != 0) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("transformer: blocks.0.attn.qkv_proj.weight is {}, wanted a multiple "
                            "of 3 times the head size {} as rows",
                            qkv.to_string(), config.head_dim));
  }
  if (fc1[0] % 2 != 0) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("transformer: blocks.0.mlp.fc1.weight is {}, wanted an even number of "
                            "rows (gate and value)",
                            fc1.to_string()));
  }
  config.num_heads = qkv[0] / 3 / config.head_dim;
  config.ffn_hidden_size = fc1[0] / 2;
  return {};
}

Status read_scalars(const WeightSource& weights, DitConfig& config) {
  constexpr double kRopeTheta = 10000.0;
  constexpr double kEps = 1e-5;
  constexpr std::int64_t kRopeFreqs = 16;
  std::int64_t rope_freqs = kRopeFreqs;
  if (weights.has("rope.inv_freq")) {
    MINIACC_ASSIGN(const Shape inv_freq, shape_of_rank(weights, kComponent, "rope.inv_freq", 1));
    rope_freqs = inv_freq[0];
  }
  // Three axes of frequencies, each rotating a pair of channels, must fit a head.
  MINIACC_ASSIGN(config.rope_freqs,
                 count_config(weights, kComponent, "rope_inv_freq_len", rope_freqs, 1 << 20));
  if (config.head_dim / 6 < config.rope_freqs) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("transformer: {} rotary frequencies per axis need heads of at least {} "
                            "channels, blocks.0.attn.q_norm.weight has {}",
                            config.rope_freqs, 6 * config.rope_freqs, config.head_dim));
  }
  MINIACC_ASSIGN(config.rope_theta, theta_config(weights, kComponent, "rope_theta", kRopeTheta));
  MINIACC_ASSIGN(config.norm_eps, eps_config(weights, kComponent, "norm_eps", kEps));
  MINIACC_ASSIGN(config.qk_norm_eps, eps_config(weights, kComponent, "qk_norm_eps", kEps));
  MINIACC_ASSIGN(config.final_norm_eps, eps_config(weights, kComponent, "final_norm_eps", kEps));
  return {};
}

}  // namespace

Result<DitConfig> read_dit_config(const WeightSource& weights) {
  MINIACC_RETURN_IF_ERROR(refuse_variants(weights));
  DitConfig config;
  MINIACC_ASSIGN(const Shape video,
                 shape_of_rank(weights, kComponent, "video_patch_proj.weight", 2));
  MINIACC_ASSIGN(const Shape audio,
                 shape_of_rank(weights, kComponent, "audio_patch_proj.weight", 2));
  MINIACC_ASSIGN(const Shape text, shape_of_rank(weights, kComponent, "condition_proj.weight", 2));
  if (video[1] % kPatchArea != 0) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("transformer: video_patch_proj.weight is {}, wanted a multiple of {} "
                            "columns (channels of a 1x2x2 patch)",
                            video.to_string(), kPatchArea));
  }
  config.hidden_size = audio[0];
  config.video_row_width = video[1];
  config.audio_row_width = audio[1];
  config.text_dim = text[1];
  MINIACC_RETURN_IF_ERROR(read_time_dimensions(weights, config));
  MINIACC_RETURN_IF_ERROR(read_block_dimensions(weights, config));
  MINIACC_RETURN_IF_ERROR(read_scalars(weights, config));
  MINIACC_RETURN_IF_ERROR(check_all(weights, config));
  return config;
}

}  // namespace miniacc
