#pragma once

#include <array>
#include <cstdint>

#include "core/weight_source.h"

namespace miniacc {

/// Dimensions of the conditioner's language layers (Qwen3-VL), spec text_encoder.md §1, §4.
struct TextEncoderConfig {
  std::int64_t hidden_size = 0;
  std::int64_t ffn_hidden_size = 0;
  std::int64_t vocab_size = 0;  ///< rows of the embedding table
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  /// Layers that run; the hidden state behind the last of them conditions the transformer. Files
  /// may hold more, which are not read.
  std::int64_t num_used_layers = 0;
  std::array<std::int64_t, 3> mrope_section{};  ///< frequencies of time, height, width
  double rope_theta = 0.0;
  float rms_norm_eps = 0.0F;
};

/// Dimensions from shapes; from the config keys rms_norm_eps, rope_theta, mrope_section and
/// miniacc_text_layers what shapes do not tell. Absent keys: the released model's values, its split
/// of the frequencies in the proportion 24:20:20, and 50 layers or as many as the file has. Checks
/// every tensor that runs. kInvalidInput or kNotFound names tensor, shape and wanted shape.
[[nodiscard]] Result<TextEncoderConfig> read_text_encoder_config(const WeightSource& weights);

}  // namespace miniacc
