#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/tensor_file.h"
#include "model/support/vae_memory_source.h"

namespace miniacc::testing {

/// Values of a stored tensor as f32 or f64-exact integers, whatever its dtype (f16, f32, f64, i32,
/// i64); throws on trouble, for golden files of ours.
std::vector<float> golden_values(const TensorFile& file, const std::string& name);
std::vector<std::int64_t> golden_integers(const TensorFile& file, const std::string& name);
/// A file under tests/golden.
TensorFile open_golden(const std::string& name);

/// The micro model's VAEs (tests/golden/h3-micro, official files) in canonical layout, with the
/// conversions written out here: fused rows from head by head to Q, K, V; weight norms folded.
VaeMemorySource micro_video_vae();
VaeMemorySource micro_audio_vae();

/// Dimensions of a random video VAE that is cheap enough to decode whole pictures of many tiles.
struct TinyVideoVae {
  std::int64_t latent_channels = 6;
  std::int64_t num_heads = 2;
  std::int64_t head_dim = 16;
  std::int64_t ffn_hidden_size = 40;
  std::int64_t num_layers = 2;
  std::int64_t num_register_tokens = 3;
  std::int64_t patch = 2;         ///< pixels a latent
  std::int64_t tile_size = 8;     ///< pixels: 4 latents
  std::int64_t tile_overlap = 2;  ///< pixels: 1 latent
};
VaeMemorySource tiny_video_vae(const TinyVideoVae& dims = {});

/// A random audio VAE of two stages (rates 5 and 2) with two residual blocks each.
VaeMemorySource tiny_audio_vae();

}  // namespace miniacc::testing
