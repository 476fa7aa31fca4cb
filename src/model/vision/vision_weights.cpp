#include "model/vision/vision_weights.h"

#include <fmt/format.h>

#include "model/vision/patches.h"

namespace miniacc::vision {
namespace {

Result<NormWeights> load_norm(WeightSource& weights, const std::string& stem, Device& device) {
  NormWeights norm;
  MINIACC_ASSIGN(norm.weight, weights.load(stem + ".weight", device));
  MINIACC_ASSIGN(norm.bias, weights.load(stem + ".bias", device));
  return norm;
}

Result<LinearWeights> load_linear(WeightSource& weights, const std::string& stem,
                                  Precision precision, Device& device) {
  LinearWeights linear;
  MINIACC_ASSIGN(linear.weight, weights.load_matrix(stem + ".weight", precision, device));
  MINIACC_ASSIGN(linear.bias, weights.load(stem + ".bias", device));
  return linear;
}

}  // namespace

WeightMatrix PatchEmbedWeights::matrix() const {
  WeightMatrix matrix = proj.weight.view();
  matrix.values = matrix.values.reshape({matrix.values.dim(0), kPatchRowSize});
  return matrix;
}

Result<PatchEmbedWeights> load_patch_embed(WeightSource& weights, Precision precision,
                                           Device& device) {
  PatchEmbedWeights embed;
  MINIACC_ASSIGN(embed.proj, load_linear(weights, "visual.patch_embed.proj", precision, device));
  MINIACC_ASSIGN(embed.pos_embed, weights.load("visual.pos_embed.weight", device));
  return embed;
}

Result<BlockWeights> load_block(WeightSource& weights, std::int64_t index, Precision precision,
                                Device& device) {
  const std::string stem = fmt::format("visual.blocks.{}.", index);
  BlockWeights block;
  MINIACC_ASSIGN(block.norm1, load_norm(weights, stem + "norm1", device));
  MINIACC_ASSIGN(block.qkv, load_linear(weights, stem + "attn.qkv", precision, device));
  MINIACC_ASSIGN(block.proj, load_linear(weights, stem + "attn.proj", precision, device));
  MINIACC_ASSIGN(block.norm2, load_norm(weights, stem + "norm2", device));
  MINIACC_ASSIGN(block.linear_fc1,
                 load_linear(weights, stem + "mlp.linear_fc1", precision, device));
  MINIACC_ASSIGN(block.linear_fc2,
                 load_linear(weights, stem + "mlp.linear_fc2", precision, device));
  return block;
}

Result<MergerWeights> load_merger(WeightSource& weights, const std::string& stem,
                                  Precision precision, Device& device) {
  MergerWeights merger;
  MINIACC_ASSIGN(merger.norm, load_norm(weights, stem + "norm", device));
  MINIACC_ASSIGN(merger.linear_fc1, load_linear(weights, stem + "linear_fc1", precision, device));
  MINIACC_ASSIGN(merger.linear_fc2, load_linear(weights, stem + "linear_fc2", precision, device));
  return merger;
}

}  // namespace miniacc::vision
