#include "model/dit/weights.h"

#include <fmt/format.h>

namespace miniacc {
namespace {

Result<BiasedLinear> load_linear(WeightSource& weights, const std::string& prefix,
                                 Precision precision, Device& device) {
  BiasedLinear layer;
  MINIACC_ASSIGN(layer.weight, weights.load_matrix(prefix + ".weight", precision, device));
  MINIACC_ASSIGN(layer.bias, weights.load(prefix + ".bias", device));
  return layer;
}

LayerStack block_stack(const char* prefix, std::int64_t count, const DitConfig& config,
                       Precision precision) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t attention = config.attention_size();
  const std::int64_t ffn = config.ffn_hidden_size;
  return {.prefix = prefix,
          .count = count,
          .items = {{"norm1.weight", {hidden}, {}},
                    {"attn.qkv_proj.weight", {3 * attention, hidden}, precision},
                    {"attn.q_norm.weight", {config.head_dim}, {}},
                    {"attn.k_norm.weight", {config.head_dim}, {}},
                    {"attn.out_proj.weight", {hidden, attention}, precision},
                    {"norm2.weight", {hidden}, {}},
                    {"mlp.fc1.weight", {2 * ffn, hidden}, precision},
                    {"mlp.fc2.weight", {hidden, ffn}, precision}}};
}

}  // namespace

LayerStack dit_block_stack(const DitConfig& config, Precision precision) {
  return block_stack("blocks.", config.num_layers, config, precision);
}

LayerStack refiner_block_stack(const DitConfig& config, Precision precision) {
  return block_stack("token_refiner.blocks.", config.num_refiner_layers, config,
                     precision == Precision::kInt8 ? Precision::kBF16 : precision);
}

DitBlockWeights dit_block_weights(const LayerView& layer) {
  const std::vector<WeightMatrix>& tensors = layer.tensors;
  MINIACC_REQUIRE(tensors.size() == 8, "dit_block_weights: a layer of a block stack");
  return {.norm1 = tensors[0].values,
          .qkv_proj = tensors[1],
          .q_norm = tensors[2].values,
          .k_norm = tensors[3].values,
          .out_proj = tensors[4],
          .norm2 = tensors[5].values,
          .fc1 = tensors[6],
          .fc2 = tensors[7]};
}

Result<BiasedLinear> load_block_adaln(WeightSource& weights, const DitConfig& config,
                                      std::int64_t index, Precision precision, Device& device) {
  const bool exact = precision == Precision::kF32 || config.has_curve_table();
  return load_linear(weights, fmt::format("blocks.{}.adaln_proj.linear", index),
                     exact ? Precision::kF32 : Precision::kBF16, device);
}

Result<DitIslands> load_dit_islands(WeightSource& weights, const DitConfig& config,
                                    Device& device) {
  const auto linear = [&](const char* prefix) {
    return load_linear(weights, prefix, Precision::kF32, device);
  };
  DitIslands islands;
  MINIACC_ASSIGN(islands.video_patch_proj, linear("video_patch_proj"));
  MINIACC_ASSIGN(islands.audio_patch_proj, linear("audio_patch_proj"));
  MINIACC_ASSIGN(islands.condition_proj, linear("condition_proj"));
  if (config.has_curve_table()) {
    MINIACC_ASSIGN(islands.adaln_t_table, weights.load("adaln_t_table", device));
  } else {
    MINIACC_ASSIGN(islands.time_proj_in, linear("time_embedder.proj_in"));
    MINIACC_ASSIGN(islands.time_proj_out, linear("time_embedder.proj_out"));
  }
  MINIACC_ASSIGN(islands.refiner_final_norm,
                 weights.load("token_refiner.final_norm.weight", device));
  MINIACC_ASSIGN(islands.final_norm, weights.load("final_layer.norm.weight", device));
  MINIACC_ASSIGN(islands.final_adaln_proj, linear("final_layer.adaln_proj.linear"));
  MINIACC_ASSIGN(islands.video_out, linear("final_layer.video_out"));
  MINIACC_ASSIGN(islands.audio_out, linear("final_layer.audio_out"));
  return islands;
}

}  // namespace miniacc
