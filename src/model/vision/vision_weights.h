#pragma once

#include <string>

#include "core/weight_source.h"
#include "model/vision/vision_config.h"

/// The tower's weights as they are read, a part at a time. Fields carry the checkpoint's names.
namespace miniacc::vision {

struct NormWeights {
  Tensor weight;  ///< [size] f32
  Tensor bias;    ///< [size] f32
};

struct LinearWeights {
  OwnedWeightMatrix weight;  ///< [out, in]
  Tensor bias;               ///< [out] f32
};

struct PatchEmbedWeights {
  LinearWeights proj;  ///< weight [hidden, 3, 2, 16, 16]
  Tensor pos_embed;    ///< [side², hidden] f32

  /// proj.weight as the matrix [hidden, 1536] that patch rows are multiplied with.
  [[nodiscard]] WeightMatrix matrix() const;
};

struct BlockWeights {
  NormWeights norm1;
  LinearWeights qkv;   ///< [3·hidden, hidden]: q, k, v, heads of each in order
  LinearWeights proj;  ///< [hidden, hidden]
  NormWeights norm2;
  LinearWeights linear_fc1;  ///< [ffn, hidden]
  LinearWeights linear_fc2;  ///< [hidden, ffn]
};

struct MergerWeights {
  NormWeights norm;          ///< of a patch (merger) or of four together (DeepStack)
  LinearWeights linear_fc1;  ///< [4·hidden, 4·hidden]
  LinearWeights linear_fc2;  ///< [out, 4·hidden]
};

[[nodiscard]] Result<PatchEmbedWeights> load_patch_embed(WeightSource& weights, Precision precision,
                                                         Device& device);
[[nodiscard]] Result<BlockWeights> load_block(WeightSource& weights, std::int64_t index,
                                              Precision precision, Device& device);
/// `stem` is "visual.merger." or "visual.deepstack_merger_list.<j>.".
[[nodiscard]] Result<MergerWeights> load_merger(WeightSource& weights, const std::string& stem,
                                                Precision precision, Device& device);

}  // namespace miniacc::vision
