#include "checkpoint/open_component.h"

#include <gtest/gtest.h>

#include "checkpoint/weights_util.h"
#include "device/cpu_device.h"
#include "support/compare.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(MINIACC_TEST_DATA) / "golden";

using testing::expect_same_weights;
using testing::open_or_fail;

TEST(OpenComponent, OfficialAndDiffusersTransformersAreIdentical) {
  const auto official = open_or_fail(kGolden / "h3-micro/transformer");
  const auto diffusers = open_or_fail(kGolden / "h3-micro-diffusers/transformer");
  ASSERT_TRUE(official && diffusers);
  EXPECT_EQ(official->info().naming, Naming::kOfficial);
  EXPECT_TRUE(official->info().interleaved_qkv);
  EXPECT_EQ(diffusers->info().naming, Naming::kDiffusers);
  EXPECT_EQ(official->info().dimensions.at("num_layers"), 3);
  EXPECT_EQ(official->info().dimensions.at("head_dim"), 32);
  EXPECT_EQ(official->info().dimensions.at("time_embed_dim"), 36);
  EXPECT_GT(expect_same_weights(*official, *diffusers), 30);
  for (const char* key : {"rope_inv_freq_len", "norm_eps", "qk_norm_eps", "final_norm_eps"}) {
    EXPECT_EQ(official->config(key), diffusers->config(key)) << key;
    EXPECT_TRUE(official->config(key)) << key;
  }
}

TEST(OpenComponent, OfficialAndDiffusersVideoVaesAreIdentical) {
  const auto official = open_or_fail(kGolden / "h3-micro/video_vae");
  const auto diffusers = open_or_fail(kGolden / "h3-micro-diffusers/vae");
  ASSERT_TRUE(official && diffusers);
  EXPECT_GT(expect_same_weights(*official, *diffusers), 30);
  for (const char* key : {"num_heads", "rope_theta", "rope_dim_ratio", "latents_mean",
                          "latents_std", "clip_length", "token_drop"}) {
    EXPECT_EQ(official->config(key), diffusers->config(key)) << key;
    EXPECT_TRUE(official->config(key)) << key;
  }
}

TEST(OpenComponent, OfficialAndDiffusersAudioVaesAreIdentical) {
  const auto official = open_or_fail(kGolden / "h3-micro/audio_vae");
  const auto diffusers = open_or_fail(kGolden / "h3-micro-diffusers/audio_vae");
  ASSERT_TRUE(official && diffusers);
  EXPECT_GT(expect_same_weights(*official, *diffusers), 30);
  for (const char* key : {"latents_mean", "latents_std", "decoder_rates", "sampling_rate"}) {
    EXPECT_EQ(official->config(key), diffusers->config(key)) << key;
    EXPECT_TRUE(official->config(key)) << key;
  }
}

TEST(OpenComponent, TextEncoderHasTheUsedLayersOnly) {
  const auto encoder = open_or_fail(kGolden / "h3-micro/text_encoder");
  ASSERT_TRUE(encoder);
  EXPECT_EQ(encoder->config("miniacc_text_layers"), std::vector<double>{3});
  EXPECT_EQ(encoder->config("mrope_section"), (std::vector<double>{4, 2, 2}));
  EXPECT_TRUE(encoder->has("layers.2.mlp.down_proj.weight"));
  EXPECT_FALSE(encoder->has("layers.3.mlp.down_proj.weight"));
  EXPECT_FALSE(encoder->has("lm_head.weight"));
  EXPECT_TRUE(encoder->has("visual.merger.linear_fc2.weight"));
}

TEST(OpenComponent, PrunedTransformerKeepsTheTrunkOfTheFullOne) {
  const auto official = open_or_fail(kGolden / "h3-micro/transformer");
  const auto pruned = open_or_fail(kGolden / "h3-micro-pruned");
  ASSERT_TRUE(official && pruned);
  EXPECT_TRUE(pruned->info().pruned);
  EXPECT_EQ(pruned->info().naming, Naming::kComfy);
  CpuDevice device;
  for (const char* name :
       {"blocks.2.attn.qkv_proj.weight", "token_refiner.blocks.1.attn.qkv_proj.weight",
        "blocks.0.mlp.fc1.weight", "final_layer.video_out.weight"}) {
    const auto a = official->load(name, device);
    const auto b = pruned->load(name, device);
    ASSERT_TRUE(a && b) << name;
    EXPECT_TRUE(testing::identical_to(a->f32(), b->f32())) << name;
  }
  EXPECT_EQ(*pruned->shape("adaln_t_table"), (Shape{65, 5}));
}

}  // namespace
}  // namespace miniacc
