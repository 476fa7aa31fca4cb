#include "model/video_vae/video_vae_config.h"

#include <gmock/gmock.h>

#include <limits>

#include "device/cpu_device.h"
#include "model/support/vae_models.h"
#include "model/video_vae/video_vae_decoder.h"

namespace miniacc::video_vae {
namespace {

using ::testing::HasSubstr;

Result<VideoVaeDecoder> open(testing::VaeMemorySource& source) {
  static CpuDevice device;  // outlives what the result owns
  return VideoVaeDecoder::open(source, device, Precision::kF32, 0);
}

TEST(VideoVaeConfig, DimensionsComeFromShapes) {
  testing::VaeMemorySource source = testing::micro_video_vae();
  const auto config = read_config(source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->latent_channels, 24);
  EXPECT_EQ(config->hidden_size, 64);
  EXPECT_EQ(config->num_layers, 3);
  EXPECT_EQ(config->num_heads, 4);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->ffn_hidden_size, 128);
  EXPECT_EQ(config->num_register_tokens, 4);
  EXPECT_EQ(config->spatial_patch, 16);
  EXPECT_EQ(config->num_rope_frequencies, 2);
  EXPECT_EQ(config->tile_size, 256);
  EXPECT_EQ(config->tile_overlap_min, 64);
}

TEST(VideoVaeConfig, SilentCheckpointHasHeadsOf64) {
  testing::TinyVideoVae dims;
  dims.num_heads = 3;
  dims.head_dim = 64;
  testing::VaeMemorySource with_key = testing::tiny_video_vae(dims);
  testing::VaeMemorySource source;
  for (const char* name : {"decoder.x_embedder.weight", "decoder.register_tokens",
                           "decoder.transformer_blocks.0.ff.w2.weight", "decoder.proj_out.weight",
                           "decoder.transformer_blocks.0.norm1.weight"}) {
    source.set(name, with_key.at(name).shape, with_key.at(name).values);
  }
  source.set_config("tile_size", {8});
  source.set_config("tile_overlap_min", {2});
  const auto config = read_config(source);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->num_heads, 3);
  EXPECT_EQ(config->num_rope_frequencies, 8);
  EXPECT_EQ(config->rope_theta, 100.0);
}

TEST(VideoVaeConfig, MissingTensorIsNamed) {
  testing::VaeMemorySource source = testing::tiny_video_vae();
  source.erase("decoder.transformer_blocks.1.attn.to_out.bias");
  const auto decoder = open(source);
  ASSERT_FALSE(decoder);
  EXPECT_EQ(decoder.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(decoder.error().message, HasSubstr("blocks.1.attn.to_out.bias"));
}

TEST(VideoVaeConfig, WrongShapeIsNamedWithBothShapes) {
  testing::VaeMemorySource source = testing::tiny_video_vae();
  source.set("decoder.transformer_blocks.0.ff.w1.weight", {80, 31}, std::vector<float>(80 * 31));
  const auto decoder = open(source);
  ASSERT_FALSE(decoder);
  EXPECT_EQ(decoder.error().code, ErrorCode::kInvalidInput);
  EXPECT_THAT(decoder.error().message, HasSubstr("ff.w1.weight is [80, 31], wanted [80, 32]"));
}

TEST(VideoVaeConfig, RefusesNumbersThatDoNotFit) {
  const auto error_with = [](const std::string& key, std::vector<double> values) {
    testing::VaeMemorySource source = testing::tiny_video_vae();
    source.set_config(key, std::move(values));
    const auto decoder = open(source);
    return decoder ? std::string("none") : decoder.error().message;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(error_with("num_heads", {5}), HasSubstr("5 attention heads"));
  EXPECT_THAT(error_with("num_heads", {0}), HasSubstr("0 attention heads"));
  EXPECT_THAT(error_with("num_heads", {1e30}), HasSubstr("num_heads"));
  EXPECT_THAT(error_with("num_heads", {2, 2}), HasSubstr("num_heads"));
  EXPECT_THAT(error_with("rope_dim_ratio", {1.5}), HasSubstr("rope_dim_ratio"));
  EXPECT_THAT(error_with("rope_dim_ratio", {0.5}), HasSubstr("8 rotary channels"));
  EXPECT_THAT(error_with("rope_theta", {nan}), HasSubstr("rope_theta"));
  EXPECT_THAT(error_with("rope_theta", {-1}), HasSubstr("rope_theta"));
  EXPECT_THAT(error_with("rope_theta", {0.5}), HasSubstr("rope_theta"));
  EXPECT_THAT(error_with("rope_theta", {2e12}), HasSubstr("rope_theta"));
  for (const double eps : {0.0, 0.11, 1e-50, 1e300}) {
    EXPECT_THAT(error_with("norm_eps", {eps}), HasSubstr("norm_eps")) << eps;
  }
  EXPECT_THAT(error_with("clip_length", {0}), HasSubstr("clip_length"));
  EXPECT_THAT(error_with("token_drop", {5}), HasSubstr("token_drop"));
  EXPECT_THAT(error_with("tile_size", {7}), HasSubstr("tile_size"));
  EXPECT_THAT(error_with("tile_overlap_min", {8}), HasSubstr("tile_overlap_min"));
  EXPECT_THAT(error_with("latents_mean", {1, 2}), HasSubstr("latents_mean has 2 values, wanted 6"));
  EXPECT_THAT(error_with("latents_std", {1, 1, 0, 1, 1, 1}), HasSubstr("not positive"));
  EXPECT_THAT(error_with("latents_mean", {1, 1, nan, 1, 1, 1}), HasSubstr("not finite"));
  EXPECT_EQ(error_with("unknown", {nan}), "none");
}

TEST(VideoVaeConfig, StatisticsTensorsComeBeforeTheConfiguration) {
  CpuDevice device;
  testing::VaeMemorySource source = testing::tiny_video_vae();
  source.set("latents_mean", {6}, {1, 2, 3, 4, 5, 6});
  const auto statistics = vae::latent_statistics(source, 6, {}, {}, device);
  ASSERT_TRUE(statistics);
  EXPECT_EQ(statistics->mean[5], 6.0F);
  EXPECT_FLOAT_EQ(statistics->std[1], 0.9F);
}

TEST(VideoVaeConfig, ReleasedStatisticsNeedTheirNumberOfChannels) {
  CpuDevice device;
  testing::VaeMemorySource source;
  const std::vector<float> released = {1, 2};
  EXPECT_TRUE(vae::latent_statistics(source, 2, released, released, device));
  EXPECT_FALSE(vae::latent_statistics(source, 3, released, released, device));
}

TEST(VideoVaeConfig, ProjOutRowsMustBeWholePatches) {
  testing::VaeMemorySource source = testing::tiny_video_vae();
  source.set("decoder.proj_out.weight", {50, 32}, std::vector<float>(50 * 32));
  const auto config = read_config(source);
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().message, HasSubstr("decoder.proj_out.weight is [50, 32]"));
}

}  // namespace
}  // namespace miniacc::video_vae
