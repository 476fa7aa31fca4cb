#include "model/video_vae/video_vae_config.h"

#include <fmt/format.h>

#include <cmath>

#include "model/common/shape_check.h"

namespace miniacc::video_vae {
namespace {

constexpr std::int64_t kHeadDim = 64;          // of the released model, where no config tells
constexpr std::int64_t kMaxLayers = 4096;      // bounds the search for the last layer
constexpr std::int64_t kLargestPixels = 4096;  // of a tile or clip: bounds what config may ask for

Status read_shapes(const WeightSource& source, VideoVaeConfig& config) {
  MINIACC_ASSIGN(const Shape embedder, vae::shape_of_rank(source, "decoder.x_embedder.weight", 2));
  config.hidden_size = embedder[0];
  config.latent_channels = embedder[1];
  MINIACC_ASSIGN(const Shape registers, vae::shape_of_rank(source, "decoder.register_tokens", 3));
  config.num_register_tokens = registers[1];
  MINIACC_ASSIGN(const Shape w2,
                 vae::shape_of_rank(source, "decoder.transformer_blocks.0.ff.w2.weight", 2));
  config.ffn_hidden_size = w2[1];
  config.num_layers = 0;
  while (config.num_layers < kMaxLayers &&
         source.has(fmt::format("decoder.transformer_blocks.{}.norm1.weight", config.num_layers))) {
    ++config.num_layers;
  }
  MINIACC_ASSIGN(const Shape proj_out, vae::shape_of_rank(source, "decoder.proj_out.weight", 2));
  const std::int64_t area = proj_out[0] / (3 * config.time.temporal_patch);
  config.spatial_patch = std::llround(std::sqrt(static_cast<double>(area)));
  if (config.values_per_token() != proj_out[0]) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("decoder.proj_out.weight is {}, wanted 3 x {} x patch x patch rows",
                            proj_out.to_string(), config.time.temporal_patch));
  }
  return {};
}

Status read_heads(const WeightSource& source, VideoVaeConfig& config) {
  MINIACC_ASSIGN(config.num_heads,
                 vae::config_integer(source, "num_heads", config.hidden_size / kHeadDim, 0,
                                     config.hidden_size));
  if (config.num_heads < 1 || config.hidden_size % config.num_heads != 0) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("video VAE: width {} does not divide into {} attention heads",
                            config.hidden_size, config.num_heads));
  }
  config.head_dim = config.hidden_size / config.num_heads;
  MINIACC_ASSIGN(const double ratio, vae::config_number(source, "rope_dim_ratio", 0.75));
  if (ratio <= 0.0 || ratio > 1.0) {
    return fail(
        ErrorCode::kInvalidInput,
        fmt::format("video VAE: rope_dim_ratio is {}, wanted more than 0, at most 1", ratio));
  }
  const auto rope_dim = static_cast<std::int64_t>(static_cast<double>(config.head_dim) * ratio);
  if (rope_dim < 6 || rope_dim % 6 != 0) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("video VAE: {} rotary channels a head, wanted a multiple of 6 (three "
                            "axes in pairs)",
                            rope_dim));
  }
  config.num_rope_frequencies = rope_dim / 6;
  MINIACC_ASSIGN(config.rope_theta, theta_config(source, "video VAE", "rope_theta", 100.0));
  MINIACC_ASSIGN(config.norm_eps, eps_config(source, "video VAE", "norm_eps", 1e-5));
  return {};
}

Status read_geometry(const WeightSource& source, VideoVaeConfig& config) {
  MINIACC_ASSIGN(config.time.clip_length,
                 vae::config_integer(source, "clip_length", 17, 1, kLargestPixels));
  MINIACC_ASSIGN(config.time.token_drop,
                 vae::config_integer(source, "token_drop", 3, 0, kLargestPixels));
  MINIACC_RETURN_IF_ERROR(config.time.validate());
  MINIACC_ASSIGN(config.tile_size,
                 vae::config_integer(source, "tile_size", 256, 1, kLargestPixels));
  MINIACC_ASSIGN(config.tile_overlap_min,
                 vae::config_integer(source, "tile_overlap_min", 64, 0, kLargestPixels));
  if (config.tile_overlap_min >= config.tile_size || config.tile_size % config.spatial_patch != 0 ||
      config.tile_overlap_min % config.spatial_patch != 0) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("video VAE: tile_size {} and tile_overlap_min {} px, wanted multiples "
                            "of the patch of {} px, the overlap smaller than the tile",
                            config.tile_size, config.tile_overlap_min, config.spatial_patch));
  }
  return {};
}

}  // namespace

Result<VideoVaeConfig> read_config(const WeightSource& source) {
  VideoVaeConfig config;
  MINIACC_RETURN_IF_ERROR(read_shapes(source, config));
  MINIACC_RETURN_IF_ERROR(read_heads(source, config));
  MINIACC_RETURN_IF_ERROR(read_geometry(source, config));
  return config;
}

}  // namespace miniacc::video_vae
