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

Result<DitBlockWeights> load_block(WeightSource& weights, const std::string& prefix,
                                   Precision precision, Device& device) {
  DitBlockWeights block;
  MINIACC_ASSIGN(block.norm1, weights.load(prefix + ".norm1.weight", device));
  MINIACC_ASSIGN(block.qkv_proj,
                 weights.load_matrix(prefix + ".attn.qkv_proj.weight", precision, device));
  MINIACC_ASSIGN(block.q_norm, weights.load(prefix + ".attn.q_norm.weight", device));
  MINIACC_ASSIGN(block.k_norm, weights.load(prefix + ".attn.k_norm.weight", device));
  MINIACC_ASSIGN(block.out_proj,
                 weights.load_matrix(prefix + ".attn.out_proj.weight", precision, device));
  MINIACC_ASSIGN(block.norm2, weights.load(prefix + ".norm2.weight", device));
  MINIACC_ASSIGN(block.fc1, weights.load_matrix(prefix + ".mlp.fc1.weight", precision, device));
  MINIACC_ASSIGN(block.fc2, weights.load_matrix(prefix + ".mlp.fc2.weight", precision, device));
  return block;
}

}  // namespace

std::size_t DitBlockWeights::size_bytes() const {
  return norm1.size_bytes() + qkv_proj.size_bytes() + q_norm.size_bytes() + k_norm.size_bytes() +
         out_proj.size_bytes() + norm2.size_bytes() + fc1.size_bytes() + fc2.size_bytes();
}

Result<DitBlockWeights> load_dit_block(WeightSource& weights, std::int64_t index,
                                       Precision precision, Device& device) {
  return load_block(weights, fmt::format("blocks.{}", index), precision, device);
}

Result<DitBlockWeights> load_refiner_block(WeightSource& weights, std::int64_t index,
                                           Precision precision, Device& device) {
  const Precision stored = precision == Precision::kInt8 ? Precision::kBF16 : precision;
  return load_block(weights, fmt::format("token_refiner.blocks.{}", index), stored, device);
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
