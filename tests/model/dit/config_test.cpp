#include "model/dit/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "model/support/micro_weights.h"

namespace miniacc {
namespace {

using ::testing::HasSubstr;
using testing::MemoryWeights;

TEST(DitConfig, ReadsTheMicroModel) {
  const auto config = read_dit_config(testing::micro_transformer());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->hidden_size, 48);
  EXPECT_EQ(config->num_layers, 3);
  EXPECT_EQ(config->num_refiner_layers, 2);
  EXPECT_EQ(config->num_heads, 3);
  EXPECT_EQ(config->head_dim, 32);
  EXPECT_EQ(config->ffn_hidden_size, 80);
  EXPECT_EQ(config->video_row_width, 96);
  EXPECT_EQ(config->audio_row_width, 32);
  EXPECT_EQ(config->text_dim, 56);
  EXPECT_EQ(config->time_input_dim, 32);
  EXPECT_EQ(config->time_hidden_size, 40);
  EXPECT_EQ(config->time_embed_dim, 36);
  EXPECT_EQ(config->rope_freqs, 4);
  EXPECT_FALSE(config->has_curve_table());
  EXPECT_EQ(config->rope_theta, 10000.0);
  EXPECT_EQ(config->norm_eps, 1e-5F);
}

TEST(DitConfig, ReadsTheCurveForm) {
  const auto config = read_dit_config(testing::micro_transformer_pruned());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->curve_rows, 65);
  EXPECT_EQ(config->time_embed_dim, 5);
  EXPECT_EQ(config->time_input_dim, 0);
}

TEST(DitConfig, TakesTheNumberOfFrequenciesFromTheTensorWithoutAConfigKey) {
  MemoryWeights weights = testing::micro_transformer();
  weights.config_values.clear();
  EXPECT_EQ(read_dit_config(weights)->rope_freqs, 4);
}

TEST(DitConfig, ReadsScalarsFromTheConfig) {
  MemoryWeights weights = testing::micro_transformer();
  weights.config_values["rope_theta"] = {500.0};
  weights.config_values["norm_eps"] = {1e-6};
  weights.config_values["qk_norm_eps"] = {2e-6};
  weights.config_values["final_norm_eps"] = {3e-6};
  const auto config = read_dit_config(weights);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->rope_theta, 500.0);
  EXPECT_EQ(config->norm_eps, 1e-6F);
  EXPECT_EQ(config->qk_norm_eps, 2e-6F);
  EXPECT_EQ(config->final_norm_eps, 3e-6F);
}

TEST(DitConfig, NamesEveryMissingTensor) {
  const MemoryWeights complete = testing::micro_transformer();
  for (const auto& [name, entry] : complete.tensors) {
    // A missing first norm shortens the stack; that is what defines its length.
    if (name == "rope.inv_freq" || name.find("norm1") != std::string::npos) {
      continue;
    }
    MemoryWeights weights = complete;
    weights.tensors.erase(name);
    const auto config = read_dit_config(weights);
    ASSERT_FALSE(config) << name;
    EXPECT_EQ(config.error().code, ErrorCode::kNotFound) << name;
    EXPECT_THAT(config.error().message, HasSubstr(name));
  }
}

TEST(DitConfig, NamesEveryTensorOfAnotherShape) {
  const MemoryWeights complete = testing::micro_transformer();
  for (const auto& [name, entry] : complete.tensors) {
    if (name == "rope.inv_freq") {
      continue;
    }
    for (int axis = 0; axis < entry.shape.rank(); ++axis) {
      if (name == "condition_proj.weight" && axis == 1) {
        continue;  // the width of the text encoder's state; only the caller knows another
      }
      MemoryWeights weights = complete;
      Shape& shape = weights.tensors[name].shape;
      shape.set(axis, shape[axis] + 1);
      const auto config = read_dit_config(weights);
      ASSERT_FALSE(config) << name << " axis " << axis;
      EXPECT_EQ(config.error().code, ErrorCode::kInvalidInput) << name;
    }
    MemoryWeights weights = complete;
    weights.tensors[name].shape.push_back(1);
    const auto config = read_dit_config(weights);
    ASSERT_FALSE(config) << name;
    EXPECT_THAT(config.error().message, HasSubstr(name)) << name;
  }
}

TEST(DitConfig, SaysWhatIsWrongWithAShape) {
  MemoryWeights weights = testing::micro_transformer();
  weights.tensors["blocks.1.mlp.fc1.weight"].shape = {160, 49};
  EXPECT_EQ(read_dit_config(weights).error().message,
            "transformer: blocks.1.mlp.fc1.weight is [160, 49], wanted [160, 48]");
}

TEST(DitConfig, RefusesHostileShapes) {
  const auto message = [](const char* name, const Shape& shape) {
    MemoryWeights weights = testing::micro_transformer();
    weights.tensors[name].shape = shape;
    const auto config = read_dit_config(weights);
    return config ? std::string("accepted") : config.error().message;
  };
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  EXPECT_THAT(message("blocks.0.attn.q_norm.weight", {0}), HasSubstr("positive"));
  EXPECT_THAT(message("blocks.0.attn.q_norm.weight", {kHuge}), HasSubstr("head size"));
  EXPECT_THAT(message("blocks.0.attn.qkv_proj.weight", {kHuge, 48}), HasSubstr("head size"));
  EXPECT_THAT(message("blocks.0.mlp.fc1.weight", {161, 48}), HasSubstr("gate and value"));
  EXPECT_THAT(message("video_patch_proj.weight", {48, 98}), HasSubstr("patch"));
  EXPECT_THAT(message("time_embedder.proj_in.weight", {40, 33}), HasSubstr("cosines"));
  EXPECT_THAT(message("audio_patch_proj.weight", {kHuge, 32}), HasSubstr("wanted"));
}

TEST(DitConfig, RefusesBadConfigValues) {
  const auto message = [](const char* key, std::vector<double> values) {
    MemoryWeights weights = testing::micro_transformer();
    weights.config_values[key] = std::move(values);
    const auto config = read_dit_config(weights);
    return config ? std::string("accepted") : config.error().message;
  };
  for (const double eps : {0.0, -1.0, 0.11, 1e-50, 1e300}) {
    for (const char* key : {"norm_eps", "qk_norm_eps", "final_norm_eps"}) {
      EXPECT_THAT(message(key, {eps}), HasSubstr(key)) << eps;
    }
  }
  for (const double theta : {0.0, 0.5, 2e12, 1e300}) {
    EXPECT_THAT(message("rope_theta", {theta}), HasSubstr("rope_theta")) << theta;
  }
  EXPECT_THAT(message("rope_theta", {1.0, 2.0}), HasSubstr("rope_theta"));
  EXPECT_THAT(message("rope_inv_freq_len", {4.5}), HasSubstr("rope_inv_freq_len"));
  EXPECT_THAT(message("rope_inv_freq_len", {6}), HasSubstr("at least 36 channels"));
  EXPECT_THAT(message("rope_inv_freq_len", {1e30}), HasSubstr("whole number"));
}

TEST(DitConfig, RefusesVariantsItCannotRun) {
  MemoryWeights sparse = testing::micro_transformer();
  sparse.set_random("blocks.0.attn.to_gate_compress.weight", {96, 48}, 1.0F);
  EXPECT_EQ(read_dit_config(sparse).error().code, ErrorCode::kUnsupported);
  MemoryWeights reduced = testing::micro_transformer();
  reduced.set_random("adaln_basis.weight", {4, 36}, 1.0F);
  EXPECT_EQ(read_dit_config(reduced).error().code, ErrorCode::kUnsupported);
  MemoryWeights head_bank = testing::micro_transformer();
  head_bank.tensors["final_layer.video_out.weight"].shape = {4 * 96, 48};
  EXPECT_THAT(read_dit_config(head_bank).error().message, HasSubstr("final_layer.video_out"));
}

TEST(DitConfig, RefusesEmptyStacks) {
  MemoryWeights no_blocks = testing::micro_transformer();
  no_blocks.tensors.erase("blocks.0.norm1.weight");
  EXPECT_THAT(read_dit_config(no_blocks).error().message, HasSubstr("at least one block"));
  MemoryWeights no_refiner = testing::micro_transformer();
  no_refiner.tensors.erase("token_refiner.blocks.0.norm1.weight");
  EXPECT_THAT(read_dit_config(no_refiner).error().message, HasSubstr("refiner"));
}

}  // namespace
}  // namespace miniacc
