#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/video_vae/video_vae_config.h"

namespace miniacc::video_vae {

/// One resolution of the encoder: residual blocks, then perhaps a strided convolution.
struct EncoderLevel {
  std::int64_t in_channels = 0;
  std::int64_t out_channels = 0;
  std::int64_t num_blocks = 0;
  bool downsample = false;
  std::int64_t stride_t = 1;
  std::int64_t stride_hw = 1;  ///< 2 exactly where `downsample`
};

/// Dimensions of a video VAE encoder, read from tensor shapes and, where shapes do not tell, from
/// the configuration. Source: spec vae.md §3.6.
struct VideoEncoderConfig {
  std::int64_t latent_channels = 0;  ///< 24; the encoder gives twice as many moments
  std::int64_t first_channels = 0;   ///< 128, of conv_in
  std::vector<EncoderLevel> levels;  ///< 6
  std::int64_t norm_num_groups = 32;
  float norm_eps = 1e-6F;
};

/// Whether the source holds an encoder at all; one without it still decodes.
bool has_encoder(const WeightSource& source);

/// kInvalidInput says what is missing or does not fit, the decoder's `config` included: both halves
/// must compress alike.
Result<VideoEncoderConfig> read_encoder_config(const WeightSource& source,
                                               const VideoVaeConfig& config);

}  // namespace miniacc::video_vae
