#include "model/vision/vision_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/open_component.h"
#include "checkpoint/synthetic_weights.h"
#include "model/support/micro_weights.h"

namespace miniacc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MemoryWeights;

std::string refusal(const MemoryWeights& weights) {
  const auto config = read_vision_config(weights);
  return config ? "accepted" : config.error().message;
}

TEST(VisionConfig, DimensionsOfTheMicroModel) {
  const auto folder =
      open_component(testing::test_data("golden/h3-micro/text_encoder"), Component::kTextEncoder);
  ASSERT_TRUE(folder) << folder.error().message;
  const auto config = read_vision_config(**folder);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->hidden_size, 16);
  EXPECT_EQ(config->ffn_hidden_size, 28);
  EXPECT_EQ(config->num_heads, 2);
  EXPECT_EQ(config->head_dim, 8);
  EXPECT_EQ(config->num_blocks, 4);
  EXPECT_EQ(config->positions_per_side, 6);
  EXPECT_EQ(config->out_size, 56);
  EXPECT_THAT(config->deepstack_blocks, ElementsAre(0, 1, 2));
}

TEST(VisionConfig, DimensionsOfTheReleasedModel) {
  const auto weights =
      open_synthetic({SyntheticSize::kFull, Precision::kBF16}, Component::kTextEncoder);
  ASSERT_TRUE(weights) << weights.error().message;
  const auto config = read_vision_config(**weights);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->hidden_size, 1152);
  EXPECT_EQ(config->ffn_hidden_size, 4304);
  EXPECT_EQ(config->num_heads, 16);
  EXPECT_EQ(config->head_dim, 72);
  EXPECT_EQ(config->num_blocks, 27);
  EXPECT_EQ(config->positions_per_side, 48);
  EXPECT_EQ(config->out_size, 5120);
  EXPECT_THAT(config->deepstack_blocks, ElementsAre(8, 16, 24));
}

// Single files come without a configuration: the released shapes tell, and no others.
TEST(VisionConfig, TheReleasedShapesNeedNoConfiguration) {
  const auto released =
      open_synthetic({SyntheticSize::kFull, Precision::kBF16}, Component::kTextEncoder);
  ASSERT_TRUE(released) << released.error().message;
  class Silent final : public WeightSource {
   public:
    explicit Silent(WeightSource& source) : source_(source) {}
    [[nodiscard]] bool has(std::string_view name) const override { return source_.has(name); }
    [[nodiscard]] Result<Shape> shape(std::string_view name) const override {
      return source_.shape(name);
    }
    [[nodiscard]] std::optional<std::vector<double>> config(
        std::string_view /*key*/) const override {
      return std::nullopt;
    }
    [[nodiscard]] Result<Tensor> load(std::string_view name, Device& device) override {
      return source_.load(name, device);
    }
    [[nodiscard]] Result<Tensor> load_rows(std::string_view name, std::int64_t first,
                                           std::int64_t count, Device& device) override {
      return source_.load_rows(name, first, count, device);
    }
    [[nodiscard]] Result<OwnedWeightMatrix> load_matrix(std::string_view name, Precision precision,
                                                        Device& device) override {
      return source_.load_matrix(name, precision, device);
    }
    [[nodiscard]] std::string identity() const override { return source_.identity(); }

   private:
    WeightSource& source_;
  } silent(**released);
  const auto config = read_vision_config(silent);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->num_heads, 16);
  EXPECT_THAT(config->deepstack_blocks, ElementsAre(8, 16, 24));
}

TEST(VisionConfig, NamesAMissingTower) {
  MemoryWeights weights = testing::micro_text_encoder();
  weights.tensors.erase("visual.patch_embed.proj.weight");
  EXPECT_FALSE(has_vision_tower(weights));
  EXPECT_EQ(read_vision_config(weights).error().code, ErrorCode::kNotFound);
  EXPECT_THAT(refusal(weights), HasSubstr("visual.*"));
}

TEST(VisionConfig, NamesTheTensorOfAWrongShape) {
  const auto broken = [](const std::string& name, const Shape& shape) {
    MemoryWeights weights = testing::micro_text_encoder();
    weights.set_random(name, shape, 1.0F);
    return refusal(weights);
  };
  EXPECT_THAT(broken("visual.patch_embed.proj.weight", {16, 3, 2, 14, 14}), HasSubstr("[16, 3, 2"));
  EXPECT_THAT(broken("visual.patch_embed.proj.bias", {17}), HasSubstr("patch_embed.proj.bias"));
  EXPECT_THAT(broken("visual.pos_embed.weight", {35, 16}), HasSubstr("square"));
  EXPECT_THAT(broken("visual.pos_embed.weight", {36, 15}), HasSubstr("pos_embed"));
  EXPECT_THAT(broken("visual.blocks.3.attn.qkv.weight", {47, 16}), HasSubstr("blocks.3.attn.qkv"));
  EXPECT_THAT(broken("visual.blocks.1.mlp.linear_fc2.bias", {28}), HasSubstr("blocks.1.mlp"));
  EXPECT_THAT(broken("visual.merger.norm.weight", {64}), HasSubstr("merger.norm"));
  EXPECT_THAT(broken("visual.merger.linear_fc2.weight", {64, 64}), HasSubstr("embed_tokens"));
  EXPECT_THAT(broken("embed_tokens.weight", {576, 64}), HasSubstr("not of one model"));
  EXPECT_THAT(broken("visual.deepstack_merger_list.1.norm.weight", {16}), HasSubstr("list.1.norm"));
  EXPECT_THAT(broken("visual.deepstack_merger_list.2.linear_fc2.weight", {55, 64}),
              HasSubstr("list.2.linear_fc2"));
}

TEST(VisionConfig, NamesAConfigurationThatCannotBe) {
  MemoryWeights weights = testing::micro_text_encoder();
  weights.config_values["vision_num_heads"] = {3};
  EXPECT_THAT(refusal(weights), HasSubstr("3 heads"));
  weights.config_values.erase("vision_num_heads");
  EXPECT_THAT(refusal(weights), HasSubstr("num_heads"));
  weights = testing::micro_text_encoder();
  for (const std::vector<double>& blocks :
       {std::vector<double>{0, 1}, {0, 2, 1}, {0, 1, 4}, {0, 1, 1.5}, {-1, 1, 2}, {1, 1, 2}}) {
    weights.config_values["deepstack_visual_indexes"] = blocks;
    EXPECT_THAT(refusal(weights), HasSubstr("deepstack_visual_indexes"));
  }
  weights.config_values.erase("deepstack_visual_indexes");
  EXPECT_THAT(refusal(weights), HasSubstr("deepstack_visual_indexes"));
}

}  // namespace
}  // namespace miniacc
