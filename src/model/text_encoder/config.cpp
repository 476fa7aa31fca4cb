#include "model/text_encoder/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/common/shape_check.h"

namespace miniacc {
namespace {

constexpr std::string_view kComponent = "text encoder";
/// The released model conditions on the state behind its 50th of 64 layers.
constexpr std::int64_t kReleasedUsedLayers = 50;

std::int64_t count_layers(const WeightSource& weights) {
  std::int64_t count = 0;
  while (weights.has(fmt::format("layers.{}.input_layernorm.weight", count))) {
    ++count;
  }
  return count;
}

Status check_layer(const WeightSource& weights, const TextEncoderConfig& config,
                   std::int64_t index) {
  const std::string prefix = fmt::format("layers.{}.", index);
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t q_size = config.num_heads * config.head_dim;
  const std::int64_t kv_size = config.num_kv_heads * config.head_dim;
  const auto check = [&](const char* tail, const Shape& wanted) {
    return check_shape(weights, kComponent, prefix + tail, wanted);
  };
  MINIACC_RETURN_IF_ERROR(check("input_layernorm.weight", {hidden}));
  MINIACC_RETURN_IF_ERROR(check("self_attn.q_proj.weight", {q_size, hidden}));
  MINIACC_RETURN_IF_ERROR(check("self_attn.k_proj.weight", {kv_size, hidden}));
  MINIACC_RETURN_IF_ERROR(check("self_attn.v_proj.weight", {kv_size, hidden}));
  MINIACC_RETURN_IF_ERROR(check("self_attn.o_proj.weight", {hidden, q_size}));
  MINIACC_RETURN_IF_ERROR(check("self_attn.q_norm.weight", {config.head_dim}));
  MINIACC_RETURN_IF_ERROR(check("self_attn.k_norm.weight", {config.head_dim}));
  MINIACC_RETURN_IF_ERROR(check("post_attention_layernorm.weight", {hidden}));
  MINIACC_RETURN_IF_ERROR(check("mlp.gate_proj.weight", {config.ffn_hidden_size, hidden}));
  MINIACC_RETURN_IF_ERROR(check("mlp.up_proj.weight", {config.ffn_hidden_size, hidden}));
  return check("mlp.down_proj.weight", {hidden, config.ffn_hidden_size});
}

Result<std::int64_t> count_heads(const Shape& proj, std::int64_t head_dim, const char* name) {
  if (proj[0] % head_dim != 0) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: layers.0.self_attn.{}.weight is {}, wanted a multiple of the head "
                            "size {} as rows",
                            kComponent, name, proj.to_string(), head_dim));
  }
  return proj[0] / head_dim;
}

Status read_attention_dimensions(const WeightSource& weights, TextEncoderConfig& config) {
  MINIACC_ASSIGN(const Shape q_norm,
                 shape_of_rank(weights, kComponent, "layers.0.self_attn.q_norm.weight", 1));
  MINIACC_ASSIGN(const Shape q_proj,
                 shape_of_rank(weights, kComponent, "layers.0.self_attn.q_proj.weight", 2));
  MINIACC_ASSIGN(const Shape k_proj,
                 shape_of_rank(weights, kComponent, "layers.0.self_attn.k_proj.weight", 2));
  config.head_dim = q_norm[0];
  MINIACC_ASSIGN(config.num_heads, count_heads(q_proj, config.head_dim, "q_proj"));
  MINIACC_ASSIGN(config.num_kv_heads, count_heads(k_proj, config.head_dim, "k_proj"));
  if (config.num_heads % config.num_kv_heads != 0) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: {} query heads are no multiple of {} key heads", kComponent,
                            config.num_heads, config.num_kv_heads));
  }
  if (config.head_dim % 2 != 0) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: layers.0.self_attn.q_norm.weight is {}, wanted an even head size",
                            kComponent, q_norm.to_string()));
  }
  return {};
}

Status read_mrope_section(const WeightSource& weights, TextEncoderConfig& config) {
  const std::int64_t frequencies = config.head_dim / 2;
  const auto values = weights.config("mrope_section");
  if (!values) {
    // 20 of 64 each for height and width, as in the released model.
    const std::int64_t side = frequencies * 20 / 64;
    config.mrope_section = {frequencies - 2 * side, side, side};
    return {};
  }
  bool valid = values->size() == 3;
  double sum = 0.0;
  for (std::size_t i = 0; valid && i < 3; ++i) {
    const double value = (*values)[i];
    valid = value >= 0.0 && value <= static_cast<double>(frequencies) && value == std::floor(value);
    sum += value;
  }
  if (!valid || sum != static_cast<double>(frequencies)) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: config key mrope_section holds [{}], wanted three whole numbers "
                            "that sum to {}",
                            kComponent, fmt::join(*values, ", "), frequencies));
  }
  for (std::size_t i = 0; i < 3; ++i) {
    config.mrope_section[i] = static_cast<std::int64_t>((*values)[i]);
  }
  return {};
}

}  // namespace

Result<TextEncoderConfig> read_text_encoder_config(const WeightSource& weights) {
  constexpr double kRopeTheta = 5'000'000.0;
  constexpr double kEps = 1e-6;
  TextEncoderConfig config;
  MINIACC_ASSIGN(const Shape embedding,
                 shape_of_rank(weights, kComponent, "embed_tokens.weight", 2));
  config.vocab_size = embedding[0];
  config.hidden_size = embedding[1];
  const std::int64_t num_layers = count_layers(weights);
  if (num_layers == 0) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: there is no layers.0.input_layernorm.weight, wanted at least one "
                            "layer",
                            kComponent));
  }
  MINIACC_ASSIGN(config.num_used_layers,
                 count_config(weights, kComponent, "miniacc_text_layers",
                              std::min(kReleasedUsedLayers, num_layers), num_layers));
  MINIACC_RETURN_IF_ERROR(read_attention_dimensions(weights, config));
  MINIACC_ASSIGN(const Shape gate,
                 shape_of_rank(weights, kComponent, "layers.0.mlp.gate_proj.weight", 2));
  config.ffn_hidden_size = gate[0];
  MINIACC_RETURN_IF_ERROR(read_mrope_section(weights, config));
  MINIACC_ASSIGN(config.rope_theta, theta_config(weights, kComponent, "rope_theta", kRopeTheta));
  MINIACC_ASSIGN(config.rms_norm_eps, eps_config(weights, kComponent, "rms_norm_eps", kEps));
  for (std::int64_t i = 0; i < config.num_used_layers; ++i) {
    MINIACC_RETURN_IF_ERROR(check_layer(weights, config, i));
  }
  return config;
}

}  // namespace miniacc
