#include "adapters/adapter_scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "adapters/adapter_files.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using ::testing::HasSubstr;
using testing::Metadata;
using testing::random_factor;

constexpr const char* kModule = "transformer_blocks.0.attn.to_q";

class AdapterScale : public ::testing::Test {
 protected:
  Result<AlphaRule> rule(const Metadata& metadata, const AlphaQuery& query = {},
                         const std::string& name = "a.safetensors") {
    const auto path =
        testing::write_adapter(folder_ / name, {{"x", random_factor(1, 1, 1)}}, metadata);
    const TensorFile file = TensorFile::open(path).value();
    const AdapterIdentity identity = identify_adapter(file).value();
    AlphaQuery full = query;
    full.identity = &identity;
    return find_alpha_rule(file, full);
  }
  double scale(const Metadata& metadata, std::int64_t rank, const AlphaQuery& query = {}) {
    return rule(metadata, query).value().scale(kModule, rank, std::nullopt).value();
  }
  testing::TempDir folder_;
};

TEST_F(AdapterScale, PlacesAreAskedInOrder) {
  const Metadata all = {{"alpha", "8"}, {"lora_alpha", "32"}, {"lora_rank", "128"}};
  const Metadata trainer = {{"lora_alpha", "32"}, {"lora_rank", "128"}};
  EXPECT_EQ(scale(all, 128, {.given = 64.0, .has_alpha_tensors = true}), 0.5);
  const AlphaRule tensors = rule(all, {.has_alpha_tensors = true}).value();
  EXPECT_EQ(tensors.scale(kModule, 128, 16.0).value(), 0.125);
  EXPECT_EQ(tensors.scale(kModule, 128, std::nullopt).value(), 1.0);
  EXPECT_EQ(scale(all, 128), 0.0625);
  EXPECT_EQ(scale(trainer, 128), 0.25);
  EXPECT_EQ(scale({}, 128), 1.0);
  EXPECT_EQ(scale({}, 16), 1.0);  // mixed ranks each get 1
}

TEST_F(AdapterScale, TrainingConfigsOfEveryKindAreRead) {
  EXPECT_EQ(
      scale({{"lora_adapter_metadata", R"({"transformer.lora_alpha":32,"transformer.r":16})"}}, 16),
      2.0);
  const Metadata patterns = {
      {"config",
       R"({"lora_alpha":8,"r":16,"alpha_pattern":{"to_q":4},"rank_pattern":{"to_k":32}})"}};
  const AlphaRule rule_of = rule(patterns).value();
  EXPECT_EQ(rule_of.scale(kModule, 16, std::nullopt).value(), 0.25);
  EXPECT_EQ(rule_of.scale("transformer_blocks.0.attn.to_k", 32, std::nullopt).value(), 0.25);
  EXPECT_EQ(scale({{"config", R"({"lora_alpha":8,"r":16,"use_rslora":true})"}}, 16), 2.0);
  std::ofstream(folder_ / "adapter_config.json") << R"({"lora_alpha":4,"r":8})";
  EXPECT_EQ(scale({}, 8), 0.5);
  // One global 384/384 beside modules of rank 128 would scale them by three.
  std::ofstream(folder_ / "adapter_config.json") << R"({"lora_alpha":384,"r":384})";
  const auto refused = rule({}).value().scale(kModule, 128, std::nullopt);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("rank 128"));
  EXPECT_THAT(refused.error().message, HasSubstr("384"));
  std::ofstream(folder_ / "adapter_config.json") << "[]";
  EXPECT_FALSE(rule({}));
}

TEST_F(AdapterScale, ValuesThatAreNoAlphaAreErrors) {
  for (const char* bad : {"", "eight", "8x", "nan", "inf", "0", "-8", "1e999"}) {
    EXPECT_FALSE(rule({{"alpha", bad}})) << bad;
    EXPECT_FALSE(rule({{"lora_alpha", bad}})) << bad;
  }
  EXPECT_FALSE(rule({{"lora_alpha", "8"}, {"lora_rank", "1.5"}}));
  for (const char* bad :
       {R"({"lora_alpha":"8"})", R"({"lora_alpha":-1})", R"({"lora_alpha":8,"r":"16"})",
        R"({"lora_alpha":8,"alpha_pattern":[]})", R"({"lora_alpha":8,"alpha_pattern":{"^a.*":4}})",
        R"({"lora_alpha":8,"rank_pattern":{"a":0}})", "lora_alpha: 8"}) {
    EXPECT_FALSE(rule({{"config", bad}})) << bad;
  }
}

TEST_F(AdapterScale, EveryDeclaredContractOfTheReleasesGivesItsScale) {
  // Spec adapters.md §13: the alpha that each file's metadata declares, at rank 128.
  for (const auto& [alpha, wanted] : {std::pair{"128", 1.0}, {"8", 0.0625}}) {
    EXPECT_EQ(scale({{"alpha", alpha}}, 128), wanted);
  }
  // v0.1 has no metadata: the table of known files.
  const AlphaQuery lightx2v{.like_lightx2v = true};
  const auto found = rule({}, lightx2v, "minimax_h3_fl2v_turbo_4step_v0.1.safetensors").value();
  EXPECT_EQ(found.scale(kModule, 128, std::nullopt).value(), 0.0625);
  EXPECT_EQ(scale({{"lora_rank", "64"}, {"lora_alpha", "64"}}, 64), 1.0);  // PDD
  // Fused conversions with one global 384/384 and modules of rank 128.
  EXPECT_FALSE(rule({{"lora_rank", "384"}, {"lora_alpha", "384"}})
                   .value()
                   .scale(kModule, 128, std::nullopt));
}

TEST_F(AdapterScale, PublishedFilesAreTold) {
  const AlphaQuery query{.like_lightx2v = true};
  for (const KnownAdapter& known : known_adapters()) {
    if (!known.alpha) {
      continue;
    }
    const auto found = rule({}, query, std::string(known.stem) + "_bf16.safetensors");
    EXPECT_EQ(found.value().source, AlphaSource::kKnownName);
    EXPECT_EQ(found.value().scale(kModule, 128, std::nullopt).value(), *known.alpha / 128.0);
    EXPECT_THAT(found.value().warning, HasSubstr("file name"));
  }
  const AlphaRule unknown = rule({}, query, "renamed.safetensors").value();
  EXPECT_EQ(unknown.source, AlphaSource::kDefault);
  EXPECT_THAT(unknown.warning, HasSubstr("1/16"));
  EXPECT_THAT(rule({{"alpha", "8"}}, query).value().warning, HasSubstr(""));
  EXPECT_EQ(rule({{"alpha", "8"}}, query).value().source, AlphaSource::kMetadata);
}

}  // namespace
}  // namespace miniacc
