#pragma once

#include <cstdint>
#include <vector>

#include "model/common/vae_weights.h"

namespace miniacc::audio_vae {

/// One upsampling stage: a transposed convolution, then residual blocks side by side.
struct StageConfig {
  std::int64_t in_channels = 0;
  std::int64_t out_channels = 0;
  std::int64_t kernel = 0;
  std::int64_t rate = 0;  ///< output samples an input sample
  /// (kernel - rate) / 2, which makes the output exactly `rate` times as long.
  [[nodiscard]] std::int64_t padding() const { return (kernel - rate) / 2; }
};

/// Dimensions of an audio VAE decoder, read from tensor shapes and, where shapes do not tell, from
/// the configuration. Source: spec vae.md §4.1.
struct AudioVaeConfig {
  std::int64_t latent_channels = 0;                           ///< 32
  std::int64_t latent_dim = 0;                                ///< 2048, width after dec_in_proj
  std::int64_t decoder_dim = 0;                               ///< 1024, width after conv_pre
  std::int64_t pre_kernel = 0;                                ///< 7
  std::int64_t post_kernel = 0;                               ///< 7
  std::vector<StageConfig> stages;                            ///< 7
  std::vector<std::int64_t> resblock_kernels;                 ///< 3, 7, 11
  std::vector<std::vector<std::int64_t>> resblock_dilations;  ///< a row a kernel: 1, 3, 5
  std::int64_t sample_rate_hz = 32000;

  /// Samples a latent decodes to, 800.
  [[nodiscard]] std::int64_t samples_per_latent() const;
};

/// kInvalidInput or kNotFound names the tensor or configuration key that does not fit.
Result<AudioVaeConfig> read_config(const WeightSource& source);

}  // namespace miniacc::audio_vae
