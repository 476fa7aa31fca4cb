#pragma once

#include <cstdint>

#include "model/common/vae_weights.h"
#include "model/video_vae/temporal_windows.h"

namespace miniacc::video_vae {

/// Dimensions of a video VAE decoder; defaults are the released model's (spec vae.md §2.3). Read
/// from tensor shapes and, where shapes do not tell, from the configuration.
struct VideoVaeConfig {
  std::int64_t latent_channels = 24;
  std::int64_t hidden_size = 2048;
  std::int64_t num_layers = 36;
  std::int64_t num_heads = 32;
  std::int64_t head_dim = 64;
  std::int64_t ffn_hidden_size = 8192;
  std::int64_t num_register_tokens = 4;
  std::int64_t spatial_patch = 16;  ///< pixels a latent spans on each image axis
  TemporalGeometry time;
  std::int64_t tile_size = 256;           ///< pixels
  std::int64_t tile_overlap_min = 64;     ///< pixels
  std::int64_t num_rope_frequencies = 8;  ///< on each of the three axes
  double rope_theta = 100.0;
  float norm_eps = 1e-5F;

  /// Suffix tokens of a tile: the registers and one token of zeros.
  [[nodiscard]] std::int64_t num_suffix_tokens() const { return num_register_tokens + 1; }
  /// Values proj_out yields for a token, ordered [3, temporal_patch, spatial_patch, spatial_patch].
  [[nodiscard]] std::int64_t values_per_token() const {
    return 3 * time.temporal_patch * spatial_patch * spatial_patch;
  }
};

/// Reads every dimension and checks that they fit together; kInvalidInput names what does not.
Result<VideoVaeConfig> read_config(const WeightSource& source);

}  // namespace miniacc::video_vae
