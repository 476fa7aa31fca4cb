#pragma once

#include <cstddef>
#include <cstdint>

#include "model/video_vae/video_vae_config.h"

namespace miniacc::video_vae {

/// One transformer block; fields carry the checkpoint's names (spec vae.md §7.1). D = hidden_size,
/// F = ffn_hidden_size. Vectors are f32, matrices what the precision asks for.
struct Block {
  Tensor norm1;              ///< [D]
  Tensor norm2;              ///< [D]
  Tensor scale1;             ///< [1, D], factor on the attention branch
  Tensor scale2;             ///< [1, D], factor on the feed-forward branch
  OwnedWeightMatrix to_qkv;  ///< [3D, D], rows Q, K, V
  Tensor to_qkv_bias;        ///< [3D]
  OwnedWeightMatrix to_out;  ///< [D, D]
  Tensor to_out_bias;        ///< [D]
  OwnedWeightMatrix w1;      ///< [2F, D], rows gate, up
  Tensor w1_bias;            ///< [2F]
  OwnedWeightMatrix w2;      ///< [D, F]
  Tensor w2_bias;            ///< [D]

  [[nodiscard]] std::size_t size_bytes() const;
};

/// What surrounds the blocks, all f32 in every precision: these layers are small, and rounding the
/// last one shows in the picture (spec vae.md §2.5).
struct Shell {
  OwnedWeightMatrix post_quant_conv;  ///< [C, C], a 1x1x1 convolution
  Tensor post_quant_conv_bias;        ///< [C]
  OwnedWeightMatrix x_embedder;       ///< [D, C]
  Tensor x_embedder_bias;             ///< [D]
  Tensor register_tokens;             ///< [1, registers, D]
  Tensor norm_out_weight;             ///< [D]
  Tensor norm_out_bias;               ///< [D]
  OwnedWeightMatrix proj_out;         ///< [values_per_token, D]
  Tensor proj_out_bias;               ///< [values_per_token]
};

/// Checks the shapes of all tensors the decoder reads, without reading values.
Status check_weights(const WeightSource& source, const VideoVaeConfig& config);

Result<Block> load_block(WeightSource& source, const VideoVaeConfig& config, std::int64_t index,
                         Precision precision, Device& device);
Result<Shell> load_shell(WeightSource& source, const VideoVaeConfig& config, Device& device);
/// What maps the diffusion's latents to the VAE's and back, of both halves.
Result<vae::LatentStatistics> load_statistics(WeightSource& source, const VideoVaeConfig& config,
                                              Device& device);

}  // namespace miniacc::video_vae
