#include "model/text_encoder/encode_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "checkpoint/open_component.h"
#include "device/cpu_device.h"
#include "model/support/micro_weights.h"
#include "support/compare.h"

namespace miniacc {
namespace {

using testing::close_to;
using testing::Golden;
using ::testing::HasSubstr;
using testing::MemoryWeights;
using testing::relative_error;

double worst_error(Precision precision) {
  CpuDevice device;
  OpContext ctx{device};
  const Golden golden("golden/text_encoder.safetensors");
  MemoryWeights weights = testing::micro_text_encoder();
  const TextEncoderConfig config = *read_text_encoder_config(weights);
  double worst = 0.0;
  for (const std::string prompt : {"short", "dialogue", "long"}) {
    const auto hidden =
        encode_text(ctx, weights, config, testing::golden_ints(golden, prompt + ".ids"), precision);
    if (!hidden) {
      ADD_FAILURE() << hidden.error().message;
      return std::numeric_limits<double>::infinity();
    }
    worst = std::max(worst, relative_error(hidden->f32(), golden.floats(prompt + ".hidden_state")));
  }
  return worst;
}

// Measured 4.0e-7.
TEST(EncodeText, HiddenStatesMatchTheReference) { EXPECT_LE(worst_error(Precision::kF32), 1e-5); }

// Measured 4.5e-3.
TEST(EncodeText, Bf16StaysNearTheReference) {
  const double error = worst_error(Precision::kBF16);
  EXPECT_LE(error, 7e-3);
  EXPECT_GE(error, 1e-4);  // otherwise this was not bf16
}

// Measured 2.2e-2.
TEST(EncodeText, Int8StaysNearTheReference) {
  const double error = worst_error(Precision::kInt8);
  EXPECT_LE(error, 3e-2);
  EXPECT_GE(error, 5e-3);
}

TEST(EncodeText, EveryLayerMatchesTheReference) {
  CpuDevice device;
  OpContext ctx{device};
  const Golden golden("golden/text_encoder.safetensors");
  MemoryWeights weights = testing::micro_text_encoder();
  TextEncoderConfig config = *read_text_encoder_config(weights);
  for (std::int64_t layers = 0; layers <= 3; ++layers) {
    config.num_used_layers = layers;
    const Tensor hidden = *encode_text(ctx, weights, config,
                                       testing::golden_ints(golden, "short.ids"), Precision::kF32);
    EXPECT_TRUE(
        close_to(hidden.f32(), golden.floats("short.after_layer_" + std::to_string(layers)), 1e-5))
        << layers;
  }
}

TEST(EncodeText, CheckpointFolderGivesTheSameStates) {
  CpuDevice device;
  OpContext ctx{device};
  const Golden golden("golden/text_encoder.safetensors");
  const std::vector<std::int32_t> ids = testing::golden_ints(golden, "dialogue.ids");
  MemoryWeights memory = testing::micro_text_encoder();
  const auto folder =
      open_component(testing::test_data("golden/h3-micro/text_encoder"), Component::kTextEncoder);
  ASSERT_TRUE(folder) << folder.error().message;
  const auto run = [&](WeightSource& weights) {
    const TextEncoderConfig config = *read_text_encoder_config(weights);
    EXPECT_EQ(config.num_used_layers, 3);
    return *encode_text(ctx, weights, config, ids, Precision::kF32);
  };
  EXPECT_TRUE(testing::identical_to(run(**folder).f32(), run(memory).f32()));
}

TEST(EncodeText, ReadsEachLayerAndEachUsedRowOnce) {
  CpuDevice device;
  OpContext ctx{device};
  MemoryWeights weights = testing::micro_text_encoder();
  const TextEncoderConfig config = *read_text_encoder_config(weights);
  const std::size_t before = device.bytes_in_use();
  const std::vector<std::int32_t> ids = {5, 9, 5, 5, 100};
  std::vector<std::int64_t> finished;
  {
    const auto hidden = encode_text(ctx, weights, config, ids, Precision::kF32,
                                    [&](std::int64_t done, std::int64_t total) {
                                      EXPECT_EQ(total, 3);
                                      finished.push_back(done);
                                    });
    ASSERT_TRUE(hidden) << hidden.error().message;
    EXPECT_EQ(device.bytes_in_use() - before, hidden->size_bytes());
  }
  EXPECT_THAT(finished, ::testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(weights.reads["embed_tokens.weight"], 3);
  EXPECT_EQ(weights.reads["layers.2.mlp.down_proj.weight"], 1);
  EXPECT_EQ(weights.reads.count("layers.3.mlp.down_proj.weight"), 0U);
}

// Causality: what follows does not change what went before.
TEST(EncodeText, EarlierRowsDoNotSeeLaterOnes) {
  CpuDevice device;
  OpContext ctx{device};
  MemoryWeights weights = testing::micro_text_encoder();
  const TextEncoderConfig config = *read_text_encoder_config(weights);
  const std::vector<std::int32_t> longer = {5, 9, 17, 100, 3};
  const std::vector<std::int32_t> other = {5, 9, 17, 200, 8};
  const Tensor a = *encode_text(ctx, weights, config, longer, Precision::kF32);
  const Tensor b = *encode_text(ctx, weights, config, other, Precision::kF32);
  const std::size_t prefix = 3 * 56;
  EXPECT_TRUE(close_to(a.f32().first(prefix), b.f32().first(prefix), 1e-6));
  EXPECT_GT(relative_error(a.f32(), b.f32()), 1e-2);
}

TEST(EncodeText, RefusesIdsWithoutAnEmbedding) {
  CpuDevice device;
  OpContext ctx{device};
  MemoryWeights weights = testing::micro_text_encoder();
  const TextEncoderConfig config = *read_text_encoder_config(weights);
  for (const std::int32_t id : {576, -1}) {
    const auto hidden = encode_text(ctx, weights, config, {&id, 1}, Precision::kF32);
    ASSERT_FALSE(hidden) << id;
    EXPECT_EQ(hidden.error().code, ErrorCode::kInvalidInput);
    EXPECT_THAT(hidden.error().message, HasSubstr(std::to_string(id)));
  }
  EXPECT_THROW((void)encode_text(ctx, weights, config, {}, Precision::kF32), InternalError);
}

TEST(EncodeText, NamesTheLayerBehindWhichTheStateIsNotFinite) {
  CpuDevice device;
  OpContext ctx{device};
  MemoryWeights weights = testing::micro_text_encoder();
  weights.allow_non_finite = true;
  weights.values("layers.1.self_attn.o_proj.weight")[0] = std::numeric_limits<float>::infinity();
  const TextEncoderConfig config = *read_text_encoder_config(weights);
  const std::vector<std::int32_t> ids = {1, 2};
  const auto hidden = encode_text(ctx, weights, config, ids, Precision::kF32);
  ASSERT_FALSE(hidden);
  EXPECT_THAT(hidden.error().message, HasSubstr("layer 1 of 3"));
}

TEST(EncodeText, StopsBetweenLayersWhenCancelled) {
  CpuDevice device;
  CancelToken cancel;
  OpContext ctx{device, 1, &cancel};
  MemoryWeights weights = testing::micro_text_encoder();
  const TextEncoderConfig config = *read_text_encoder_config(weights);
  const std::vector<std::int32_t> ids = {1, 2};
  EXPECT_THROW((void)encode_text(ctx, weights, config, ids, Precision::kF32,
                                 [&](std::int64_t, std::int64_t) { cancel.cancel(); }),
               ErrorException);
  EXPECT_EQ(weights.reads.count("layers.1.mlp.down_proj.weight"), 0U);
}

}  // namespace
}  // namespace miniacc
