#pragma once

#include <vector>

#include "model/audio_vae/audio_encoder_config.h"
#include "model/audio_vae/audio_vae_weights.h"

namespace miniacc::audio_vae {

/// x + conv1(snake(conv7(snake(x)))). Everything of the encoder is f32.
struct ResidualUnit {
  Tensor alpha1;        ///< [channels]
  Convolution dilated;  ///< [channels, channels, 7]
  Tensor alpha2;        ///< [channels]
  Convolution mix;      ///< [channels, channels, 1]
};

struct EncoderStage {
  std::vector<ResidualUnit> units;
  Tensor alpha;         ///< [channels]
  Convolution strided;  ///< [out_channels, channels, 2·stride]
};

struct NormWeights {
  Tensor weight;
  Tensor bias;
};

struct LinearWeights {
  OwnedWeightMatrix weight;  ///< [out, in]
  Tensor bias;               ///< [out]
};

/// The attention projection and the head of the mean. D = latent_dim, C = latent_channels.
struct PreBlock {
  NormWeights norm1;        ///< [D]
  NormWeights norm2;        ///< [C]
  NormWeights norm3;        ///< [D]
  LinearWeights qkv;        ///< [3D, D], rows q, k, v; bias of q, zeros, bias of v
  LinearWeights attn_proj;  ///< [C, C]
  LinearWeights proj;       ///< [C, D]
  NormWeights mlp_norm;     ///< [C]
  LinearWeights w0;         ///< [F, C], gate
  LinearWeights w1;         ///< [F, C]
  LinearWeights w2;         ///< [C, F]
  LinearWeights mean_proj;  ///< [C, C]
};

struct EncoderWeights {
  Convolution first;
  std::vector<EncoderStage> stages;
  Tensor last_alpha;  ///< [channels of the last stage]
  Convolution last;   ///< to latent_dim
  PreBlock pre_block;
};

/// Checks the shapes of all tensors the encoder reads, without reading values. logs_proj, the width
/// of the posterior, is not among them: sounds are encoded by their mean.
Status check_encoder_weights(const WeightSource& source, const AudioEncoderConfig& config);

Result<EncoderWeights> load_encoder_weights(WeightSource& source, const AudioEncoderConfig& config,
                                            Device& device);

}  // namespace miniacc::audio_vae
