#pragma once

#include <cstddef>
#include <vector>

#include "model/video_vae/video_encoder_config.h"

namespace miniacc::video_vae {

/// A convolution of the encoder, always f32.
struct EncoderConv {
  Tensor weight;  ///< [out, in, 3, 3, 3]
  Tensor bias;    ///< [out]
};

/// A group norm.
struct EncoderNorm {
  Tensor weight;  ///< [channels]
  Tensor bias;    ///< [channels]
};

/// A 1x1x1 convolution, which is a matrix product.
struct EncoderLinear {
  OwnedWeightMatrix weight;  ///< [out, in]
  Tensor bias;               ///< [out]
};

/// x ← shortcut(x) + conv2(silu(norm2(conv1(silu(norm1(x)))))).
struct EncoderBlock {
  EncoderNorm norm1;
  EncoderConv conv1;
  EncoderNorm norm2;
  EncoderConv conv2;
  EncoderLinear shortcut;  ///< empty where the width stays
};

struct EncoderLevelWeights {
  std::vector<EncoderBlock> blocks;
  EncoderConv downsample;  ///< empty where the level has none
};

struct EncoderWeights {
  EncoderConv conv_in;
  std::vector<EncoderLevelWeights> levels;
  EncoderNorm norm_out;
  EncoderConv conv_out;      ///< to 2·C moments
  EncoderLinear quant_conv;  ///< [2·C, 2·C]
};

/// Checks the shapes of all tensors the encoder reads, without reading values.
Status check_encoder_weights(const WeightSource& source, const VideoEncoderConfig& config);

Result<EncoderWeights> load_encoder_weights(WeightSource& source, const VideoEncoderConfig& config,
                                            Device& device);

}  // namespace miniacc::video_vae
