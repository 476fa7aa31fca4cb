#include "model/text_encoder/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/support/micro_weights.h"

namespace miniacc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MemoryWeights;

TEST(TextEncoderConfig, ReadsTheMicroModel) {
  const auto config = read_text_encoder_config(testing::micro_text_encoder());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->hidden_size, 56);
  EXPECT_EQ(config->ffn_hidden_size, 72);
  EXPECT_EQ(config->vocab_size, 576);
  EXPECT_EQ(config->num_heads, 4);
  EXPECT_EQ(config->num_kv_heads, 2);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->num_used_layers, 3);
  EXPECT_THAT(config->mrope_section, ElementsAre(4, 2, 2));
  EXPECT_EQ(config->rope_theta, 5e6);
  EXPECT_EQ(config->rms_norm_eps, 1e-6F);
}

TEST(TextEncoderConfig, UsesAllOfFewLayersWhenTheFileSaysNothing) {
  MemoryWeights weights = testing::micro_text_encoder();
  weights.config_values.clear();
  const auto config = read_text_encoder_config(weights);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->num_used_layers, 5);
  EXPECT_THAT(config->mrope_section, ElementsAre(4, 2, 2));
}

TEST(TextEncoderConfig, DoesNotNeedUnusedLayersToBeWhole) {
  MemoryWeights weights = testing::micro_text_encoder();
  weights.tensors.erase("layers.4.mlp.down_proj.weight");
  EXPECT_TRUE(read_text_encoder_config(weights));
}

TEST(TextEncoderConfig, NamesEveryMissingOrMisshapenTensor) {
  const MemoryWeights complete = testing::micro_text_encoder();
  for (const char* tail :
       {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight",
        "self_attn.o_proj.weight", "self_attn.q_norm.weight", "self_attn.k_norm.weight",
        "post_attention_layernorm.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight",
        "mlp.down_proj.weight"}) {
    for (const char* layer : {"layers.0.", "layers.2."}) {
      const std::string name = std::string(layer) + tail;
      MemoryWeights missing = complete;
      missing.tensors.erase(name);
      const auto without = read_text_encoder_config(missing);
      ASSERT_FALSE(without) << name;
      EXPECT_THAT(without.error().message, HasSubstr(name));
      MemoryWeights misshapen = complete;
      Shape& shape = misshapen.tensors[name].shape;
      shape.set(0, shape[0] + 1);
      const auto wrong = read_text_encoder_config(misshapen);
      ASSERT_FALSE(wrong) << name;
      EXPECT_EQ(wrong.error().code, ErrorCode::kInvalidInput) << name;
    }
  }
}

TEST(TextEncoderConfig, RefusesImpossibleValues) {
  const auto message = [](const char* key, std::vector<double> values) {
    MemoryWeights weights = testing::micro_text_encoder();
    weights.config_values[key] = std::move(values);
    const auto config = read_text_encoder_config(weights);
    return config ? std::string("accepted") : config.error().message;
  };
  EXPECT_THAT(message("miniacc_text_layers", {6}), HasSubstr("from 1 to 5"));
  EXPECT_THAT(message("miniacc_text_layers", {0}), HasSubstr("miniacc_text_layers"));
  EXPECT_THAT(message("mrope_section", {4, 2, 1}), HasSubstr("sum to 8"));
  EXPECT_THAT(message("mrope_section", {8}), HasSubstr("three whole numbers"));
  EXPECT_THAT(message("mrope_section", {-4, 6, 6}), HasSubstr("three whole numbers"));
  for (const double eps : {-1.0, 0.0, 0.11, 1e-50, 1e300}) {
    EXPECT_THAT(message("rms_norm_eps", {eps}), HasSubstr("rms_norm_eps")) << eps;
  }
  for (const double theta : {0.5, 2e12}) {
    EXPECT_THAT(message("rope_theta", {theta}), HasSubstr("rope_theta")) << theta;
  }
  EXPECT_THAT(message("rope_theta", {}), HasSubstr("rope_theta"));
}

TEST(TextEncoderConfig, RefusesAFileWithoutLayers) {
  MemoryWeights weights = testing::micro_text_encoder();
  weights.tensors.erase("layers.0.input_layernorm.weight");
  EXPECT_THAT(read_text_encoder_config(weights).error().message, HasSubstr("at least one layer"));
}

}  // namespace
}  // namespace miniacc
