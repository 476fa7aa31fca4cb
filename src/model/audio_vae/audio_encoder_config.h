#pragma once

#include <cstdint>
#include <vector>

#include "model/audio_vae/audio_vae_config.h"

namespace miniacc::audio_vae {

/// One stage of the encoder: residual units, then a strided convolution.
struct EncoderStageConfig {
  std::int64_t channels = 0;
  std::int64_t out_channels = 0;
  std::int64_t num_units = 0;  ///< 3; the dilation of unit u is 3^u
  std::int64_t stride = 0;     ///< half of the strided convolution's kernel
  /// Zeros on both sides of the strided convolution: half the stride, rounded up.
  [[nodiscard]] std::int64_t padding() const { return (stride + 1) / 2; }
};

/// Dimensions of an audio VAE encoder, read from tensor shapes and, where shapes do not tell, from
/// the configuration. Source: spec vae.md §5.2, §5.3.
struct AudioEncoderConfig {
  std::int64_t latent_channels = 0;        ///< 32
  std::int64_t first_channels = 0;         ///< 64, of block.0
  std::int64_t first_kernel = 0;           ///< 7
  std::vector<EncoderStageConfig> stages;  ///< 5
  std::int64_t latent_dim = 0;             ///< 2048, width of the trunk
  std::int64_t last_kernel = 0;            ///< 3
  std::int64_t num_heads = 8;              ///< of pre_block's attention
  std::int64_t ffn_hidden_size = 0;        ///< 64, of pre_block's mlp
  std::int64_t sample_rate_hz = 32000;

  /// Samples a latent stands for, 800.
  [[nodiscard]] std::int64_t samples_per_latent() const;
  /// Latents on each side of one that its own samples can reach through the convolutions, rounded
  /// up: pieces of a long sound overlap by as many and give the bits of the whole.
  [[nodiscard]] std::int64_t context_latents() const;
};

/// Whether the source holds an encoder at all; one without it still decodes.
bool has_encoder(const WeightSource& source);

/// kInvalidInput says what is missing or does not fit, the decoder's `config` included: both halves
/// must agree on samples a latent.
Result<AudioEncoderConfig> read_encoder_config(const WeightSource& source,
                                               const AudioVaeConfig& config);

}  // namespace miniacc::audio_vae
