#pragma once

#include <cstdint>
#include <vector>

#include "core/weight_source.h"

namespace miniacc {

/// Dimensions of the conditioner's vision tower (Qwen3-VL), spec text_encoder.md §5.
struct VisionConfig {
  std::int64_t hidden_size = 0;
  std::int64_t ffn_hidden_size = 0;
  std::int64_t num_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t num_blocks = 0;
  std::int64_t positions_per_side = 0;  ///< the position table is a square of this edge
  std::int64_t out_size = 0;            ///< hidden size of the language layers
  /// Blocks (from 0, rising) whose outputs become DeepStack features, one merger each.
  std::vector<std::int64_t> deepstack_blocks;
  float layer_norm_eps = 1e-6F;  ///< a constant of the released code
};

/// True when the text encoder's file has a vision tower at all.
[[nodiscard]] bool has_vision_tower(const WeightSource& weights);

/// Dimensions from the shapes of the text encoder's tensors `visual.*`; from the config keys
/// vision_num_heads and deepstack_visual_indexes what shapes do not tell. A configuration without
/// them is taken to be the released one where the shapes are (heads of 72 at width 1152; mergers
/// behind blocks 8, 16, 24 of 27). Checks every tensor. kNotFound where there is no tower,
/// kInvalidInput names tensor, shape and wanted shape.
[[nodiscard]] Result<VisionConfig> read_vision_config(const WeightSource& weights);

}  // namespace miniacc
