#pragma once

#include <cstddef>
#include <cstdint>

#include "model/common/layer_source.h"
#include "model/video_vae/video_vae_config.h"

namespace miniacc::video_vae {

/// One transformer block as views; fields carry the checkpoint's names (spec vae.md §7.1). D =
/// hidden_size, F = ffn_hidden_size. Vectors are f32, matrices what the precision asks for.
struct Block {
  ConstTensorView norm1;        ///< [D]
  ConstTensorView norm2;        ///< [D]
  ConstTensorView scale1;       ///< [1, D], factor on the attention branch
  ConstTensorView scale2;       ///< [1, D], factor on the feed-forward branch
  WeightMatrix to_qkv;          ///< [3D, D], rows Q, K, V
  ConstTensorView to_qkv_bias;  ///< [3D]
  WeightMatrix to_out;          ///< [D, D]
  ConstTensorView to_out_bias;  ///< [D]
  WeightMatrix w1;              ///< [2F, D], rows gate, up
  ConstTensorView w1_bias;      ///< [2F]
  WeightMatrix w2;              ///< [D, F]
  ConstTensorView w2_bias;      ///< [D]
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

/// The decoder's transformer blocks.
LayerStack block_stack(const VideoVaeConfig& config, Precision precision);
/// A layer of that stack.
Block block_weights(const LayerView& layer);
Result<Shell> load_shell(WeightSource& source, const VideoVaeConfig& config, Device& device);
/// What maps the diffusion's latents to the VAE's and back, of both halves.
Result<vae::LatentStatistics> load_statistics(WeightSource& source, const VideoVaeConfig& config,
                                              Device& device);

}  // namespace miniacc::video_vae
