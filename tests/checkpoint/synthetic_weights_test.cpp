#include "checkpoint/synthetic_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "checkpoint/find_components.h"
#include "checkpoint/make_checkpoint.h"
#include "checkpoint/weights_util.h"
#include "device/cpu_device.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using ::testing::HasSubstr;

constexpr std::array<Component, 4> kComponents = {Component::kTransformer, Component::kTextEncoder,
                                                  Component::kVideoVae, Component::kAudioVae};

TEST(SyntheticWeights, NamesAreRead) {
  const auto spec = parse_synthetic("synthetic:full-int8").value();
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->size, SyntheticSize::kFull);
  EXPECT_EQ(spec->stored, Precision::kInt8);
  EXPECT_EQ(synthetic_name(*spec), "synthetic:full-int8");
  EXPECT_FALSE(parse_synthetic("models/h3-tiny").value());
  for (const char* wrong :
       {"synthetic:", "synthetic:full", "synthetic:huge-int8", "synthetic:full-int4"}) {
    const auto refused = parse_synthetic(wrong);
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(refused.error().message, HasSubstr("synthetic:SIZE-TYPE"));
  }
}

TEST(SyntheticWeights, AreThoseOfTheFileOfTheSameSeed) {
  const testing::TempDir folder;
  MakeCheckpointOptions options;
  options.format = CheckpointFormat::kComfy;
  options.seed = 5;
  options.out = folder / "model";
  ASSERT_TRUE(make_checkpoint(options));
  const ModelFiles files = find_components(options.out).value();
  const SyntheticSpec spec = {SyntheticSize::kTiny, Precision::kBF16, 5};
  const std::filesystem::path paths[] = {files.transformer, files.text_encoder, files.video_vae,
                                         files.audio_vae};
  for (std::size_t i = 0; i < kComponents.size(); ++i) {
    SCOPED_TRACE(component_name(kComponents[i]));
    const auto stored = testing::open_or_fail(paths[i]);
    const auto computed = open_synthetic(spec, kComponents[i]).value();
    ASSERT_TRUE(stored);
    EXPECT_GT(testing::expect_same_weights(*stored, *computed), 30);
    for (const char* key : {"latents_mean", "rope_theta", "decoder_rates", "mrope_section"}) {
      EXPECT_EQ(stored->config(key), computed->config(key)) << key;
    }
  }
}

TEST(SyntheticWeights, MatricesOfEveryPrecisionAreTheTensor) {
  CpuDevice device;
  const auto weights =
      open_synthetic({SyntheticSize::kTiny, Precision::kBF16}, Component::kTransformer).value();
  const std::string name = "blocks.1.attn.qkv_proj.weight";
  const Tensor values = weights->load(name, device).value();
  const OwnedWeightMatrix f32 = weights->load_matrix(name, Precision::kF32, device).value();
  EXPECT_TRUE(std::equal(values.f32().begin(), values.f32().end(), f32.values.f32().begin()));
  const OwnedWeightMatrix int8 = weights->load_matrix(name, Precision::kInt8, device).value();
  const std::int64_t columns = values.shape()[1];
  for (std::int64_t i = 0; i < values.shape().num_elements(); ++i) {
    const float scale = int8.row_scale.f32()[static_cast<std::size_t>(i / columns)];
    ASSERT_NEAR(static_cast<float>(int8.values.view().as<std::int8_t>()[i]) * scale,
                values.f32()[static_cast<std::size_t>(i)], 0.5001F * scale);
  }
  const Tensor rows = weights->load_rows(name, 3, 2, device).value();
  EXPECT_TRUE(std::equal(rows.f32().begin(), rows.f32().end(), values.f32().begin() + 3 * columns));
  EXPECT_FALSE(weights->load_rows(name, values.shape()[0] - 1, 2, device));
  EXPECT_FALSE(weights->load("blocks.99.norm1.weight", device));
}

TEST(SyntheticWeights, Int8MatricesAreNormalAndKeepTheSizeOfTheirInput) {
  CpuDevice device;
  const auto weights =
      open_synthetic({SyntheticSize::kTiny, Precision::kInt8}, Component::kTransformer).value();
  EXPECT_TRUE(weights->info().pruned);
  EXPECT_TRUE(weights->has("adaln_t_table"));
  const OwnedWeightMatrix matrix =
      weights->load_matrix("blocks.0.mlp.fc1.weight", Precision::kInt8, device).value();
  EXPECT_EQ(matrix.rotation_group, 256);
  const std::int64_t count = matrix.values.shape().num_elements();
  double sum = 0.0;
  double squares = 0.0;
  int most = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const int value = matrix.values.view().as<std::int8_t>()[i];
    sum += value;
    squares += value * value;
    most = std::max(most, std::abs(value));
  }
  const double deviation = std::sqrt(squares / static_cast<double>(count));
  EXPECT_EQ(most, 127);
  EXPECT_NEAR(sum / static_cast<double>(count), 0.0, 0.5);
  EXPECT_NEAR(deviation * static_cast<double>(matrix.row_scale.f32()[0]) *
                  std::sqrt(static_cast<double>(matrix.values.shape()[1])),
              1.0, 0.01);
  // Other layers and seeds hold other values.
  const OwnedWeightMatrix other =
      weights->load_matrix("blocks.1.mlp.fc1.weight", Precision::kInt8, device).value();
  EXPECT_FALSE(std::equal(matrix.values.view().as<std::int8_t>(),
                          matrix.values.view().as<std::int8_t>() + count,
                          other.values.view().as<std::int8_t>()));
}

TEST(SyntheticWeights, TheFullModelHasTheReleasedSizes) {
  // Spec acceleration_full.md §0.2: 385,351,680 weights a block; model.md §2.1.
  const auto weights =
      open_synthetic({SyntheticSize::kFull, Precision::kInt8}, Component::kTransformer).value();
  std::int64_t block = 0;
  for (const char* name : {"attn.qkv_proj", "attn.out_proj", "mlp.fc1", "mlp.fc2"}) {
    block += weights->shape(std::string("blocks.49.") + name + ".weight").value().num_elements();
  }
  EXPECT_EQ(block, 385'351'680);
  EXPECT_FALSE(weights->has("blocks.50.norm1.weight"));
  EXPECT_EQ(weights->shape("blocks.0.adaln_proj.linear.weight").value(), Shape({96768, 8}));
  const auto encoder =
      open_synthetic({SyntheticSize::kFull, Precision::kBF16}, Component::kTextEncoder).value();
  EXPECT_EQ(encoder->shape("embed_tokens.weight").value(), Shape({151936, 5120}));
  EXPECT_TRUE(encoder->has("layers.49.mlp.up_proj.weight"));
  EXPECT_FALSE(encoder->has("layers.50.mlp.up_proj.weight"));
}

}  // namespace
}  // namespace miniacc
