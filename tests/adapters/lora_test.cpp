#include "adapters/lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "adapters/adapter_files.h"
#include "checkpoint/open_component.h"
#include "support/golden.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using testing::AdapterTensors;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Metadata;
using ::testing::Not;
using testing::random_factor;
using testing::test_data;

constexpr const char* kOut = "blocks.0.attn.out_proj";  // [48, 96]

class LoraFile : public ::testing::Test {
 protected:
  static AdapterTensors good() {
    return {{std::string(kOut) + ".lora_A.weight", random_factor(4, 96, 1)},
            {std::string(kOut) + ".lora_B.weight", random_factor(48, 4, 2)}};
  }
  Result<Lora> open(const AdapterTensors& tensors, bool allow_partial = false,
                    const Metadata& metadata = {}) {
    const auto path = write_adapter(folder_ / "adapter.safetensors", tensors, metadata);
    return Lora::open(*base_, {.path = path}, {.allow_partial = allow_partial});
  }
  /// The message of opening `good()` with changes; the file is named in all of them.
  std::string refusal(const AdapterTensors& added, const AdapterTensors& base = good(),
                      bool allow_partial = false) {
    AdapterTensors tensors = added;
    tensors.insert(base.begin(), base.end());
    const auto lora = open(tensors, allow_partial);
    EXPECT_FALSE(lora);
    if (lora) {
      return "";
    }
    EXPECT_THAT(lora.error().message, HasSubstr("adapter.safetensors"));
    return lora.error().message;
  }

  testing::TempDir folder_;
  std::unique_ptr<ComponentWeights> base_ =
      open_component(test_data("golden/h3-micro/transformer")).value();
};

TEST_F(LoraFile, ReportsWhatIsInIt) {
  const Lora lora = open(good(), false, {{"alpha", "1"}}).value();
  const LoraReport& report = lora.report();
  EXPECT_EQ(report.family, "official");
  EXPECT_EQ(report.alpha_source, "metadata");
  EXPECT_EQ(report.min_scale, 0.25);
  EXPECT_EQ(report.max_rank, 4);
  EXPECT_EQ(report.num_modules, 1);
  EXPECT_EQ(report.matched, 2);
  EXPECT_EQ(report.unmatched + report.rejected, 0);
  EXPECT_TRUE(lora.warnings().empty());
}

TEST_F(LoraFile, UnmatchedTensorsAreAnErrorThatNamesFive) {
  AdapterTensors extra;
  for (const char* block : {"3", "4", "5"}) {
    extra["blocks." + std::string(block) + ".mlp.fc2.lora_A.weight"] = random_factor(2, 80, 1);
    extra["blocks." + std::string(block) + ".mlp.fc2.lora_B.weight"] = random_factor(48, 2, 1);
  }
  extra["blocks.0.attn.to_q.lora_A.weight"] = random_factor(2, 48, 1);
  EXPECT_THAT(refusal(extra),
              AllOf(HasSubstr("7 of its 9 tensors"), HasSubstr("blocks.3.mlp.fc2.lora_A.weight"),
                    HasSubstr("and 2 more"), HasSubstr("--lora-allow-partial")));
  extra.merge(good());
  const Lora lora = open(extra, true).value();
  EXPECT_EQ(lora.report().matched, 2);
  EXPECT_EQ(lora.report().unmatched, 7);
  ASSERT_EQ(lora.warnings().size(), 1U);
  EXPECT_THAT(lora.warnings().front(), HasSubstr("7 of its 9 tensors"));
}

TEST_F(LoraFile, NothingThatMatchesIsAlwaysAnError) {
  for (const bool allow_partial : {false, true}) {
    EXPECT_THAT(
        refusal({{"diffusion_model.blocks.0.cross_attn.k.lora_A.weight", random_factor(2, 48, 1)}},
                {}, allow_partial),
        AllOf(HasSubstr("none of its 1 tensors"), HasSubstr("Wan")));
    EXPECT_THAT(refusal({}, {}, allow_partial), HasSubstr("holds no tensors"));
  }
}

TEST_F(LoraFile, ShapesThatDoNotFitAreNamed) {
  const std::string a = std::string(kOut) + ".lora_A.weight";
  const std::string b = std::string(kOut) + ".lora_B.weight";
  const auto with = [&](const std::string& name, const testing::AdapterTensor& tensor) {
    return refusal({{name, tensor}});
  };
  EXPECT_THAT(with(a, random_factor(4, 95, 1)),
              AllOf(HasSubstr(a), HasSubstr("[4, 95]"), HasSubstr("96 columns")));
  EXPECT_THAT(with(b, random_factor(49, 4, 1)),
              AllOf(HasSubstr(b), HasSubstr("[49, 4]"), HasSubstr("48 rows")));
  EXPECT_THAT(with(b, random_factor(48, 3, 1)), HasSubstr("ranks differ"));
  EXPECT_THAT(with(a, {{4, 2, 48}, random_factor(4, 96, 1).values}), HasSubstr("wanted a matrix"));
  EXPECT_THAT(with(a, {{0, 96}, {}}), HasSubstr("wanted a matrix"));
  EXPECT_THAT(with("blocks.1.mlp.fc2.diff", random_factor(48, 79, 1)),
              HasSubstr("wanted [48, 80]"));
  EXPECT_THAT(with("blocks.1.mlp.fc2.diff_b", {{48}, random_factor(1, 48, 1).values}),
              HasSubstr("does not have"));
  EXPECT_THAT(refusal({{"transformer_blocks.0.attn.to_q.lora_A.weight", random_factor(2, 48, 1)},
                       {"transformer_blocks.0.attn.to_q.lora_B.weight", random_factor(288, 2, 1)}},
                      {}),
              HasSubstr("wanted 96 rows"));
  EXPECT_THAT(refusal({{"blocks.0.norm1.lora_A.weight", random_factor(2, 1, 1)},
                       {"blocks.0.norm1.lora_B.weight", random_factor(48, 2, 1)}}),
              HasSubstr("no matrix"));
}

TEST_F(LoraFile, HalfPairsAndOrphansAreErrors) {
  EXPECT_THAT(refusal({{"blocks.1.mlp.fc2.lora_A.weight", random_factor(2, 80, 1)}}),
              HasSubstr("no up (B) matrix"));
  EXPECT_THAT(refusal({{"blocks.1.mlp.fc2.lora_B.weight", random_factor(48, 2, 1)}}),
              HasSubstr("no down (A) matrix"));
  EXPECT_THAT(refusal({{"blocks.1.mlp.fc2.alpha", {{1}, {8.0F}}}}), HasSubstr("no low-rank pair"));
  const std::string alpha = std::string(kOut) + ".alpha";
  EXPECT_THAT(refusal({{alpha, {{1}, {0.0F}}}}), HasSubstr("above 0"));
  EXPECT_THAT(refusal({{alpha, {{1}, {std::numeric_limits<float>::infinity()}}}}),
              HasSubstr("above 0"));
  EXPECT_THAT(refusal({{alpha, {{2}, {1.0F, 1.0F}}}}), HasSubstr("wanted one value"));
}

TEST_F(LoraFile, ValuesThatAreNotFiniteAreErrors) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    AdapterTensors tensors = good();
    tensors.begin()->second.values.back() = bad;
    EXPECT_THAT(refusal({}, tensors), AllOf(HasSubstr("lora_A"), HasSubstr("not finite")));
  }
}

TEST_F(LoraFile, MixedAndDoubledNamesAreErrors) {
  EXPECT_THAT(refusal({{"transformer_blocks.1.ff.net.2.lora_A.weight", random_factor(2, 80, 1)},
                       {"transformer_blocks.1.ff.net.2.lora_B.weight", random_factor(48, 2, 1)}}),
              HasSubstr("two conventions"));
  EXPECT_THAT(
      refusal({{"diffusion_model.blocks.1.mlp.fc2.lora_A.weight", random_factor(2, 80, 1)}}),
      HasSubstr("prefixes differ"));
  EXPECT_THAT(refusal({{std::string(kOut) + ".lora_down.weight", random_factor(4, 96, 1)}}),
              HasSubstr("the same part"));
}

TEST_F(LoraFile, MethodsThatAreNotBuiltInAreRefusedByName) {
  for (const bool allow_partial : {false, true}) {
    const auto with = [&](const std::string& name, const testing::AdapterTensor& tensor) {
      return refusal({{name, tensor}}, good(), allow_partial);
    };
    EXPECT_THAT(with(std::string(kOut) + ".dora_scale", random_factor(48, 1, 1)),
                HasSubstr("not built in"));
    EXPECT_THAT(with("blocks.0.adaln_proj.linear.weight", random_factor(864, 36, 1)),
                HasSubstr("replaces a whole tensor"));
    EXPECT_THAT(with("adaln_t_table", random_factor(65, 5, 1)), HasSubstr("replaces"));
    EXPECT_THAT(with("final_layer.video_out.weight", random_factor(96, 48, 1)),
                HasSubstr("replaces a whole tensor"));
    EXPECT_THAT(
        with("final_layer.video_out.weight", {{2, 96, 48}, random_factor(192, 48, 1).values}),
        HasSubstr("no biases of final_layer.video_out"));
    EXPECT_THAT(with(std::string(kOut) + ".lora_mid.weight", random_factor(4, 4, 1)),
                HasSubstr("not built in"));
    EXPECT_THAT(with("audio_patch_proj.diff_b", random_factor(48, 1, 1)), HasSubstr("no vector"));
    EXPECT_THAT(with(std::string(kOut) + ".diff_b", {{48}, random_factor(48, 1, 1).values}),
                HasSubstr("beside a low-rank pair"));
  }
  EXPECT_THAT(open(good(), false, {{"pdd_num_steps", "32"}}).error().message,
              HasSubstr("head banks have no weights of final_layer.video_out"));
}

TEST_F(LoraFile, ThePrefixOfTheOtherHalfDecidesWhichTensorsAreTaken) {
  const auto named = [](const std::string& prefix) {
    AdapterTensors tensors;
    for (const auto& [name, tensor] : good()) {
      tensors[prefix + name] = tensor;
    }
    return tensors;
  };
  const auto with = [&](const AdapterTensors& tensors, const std::string& user,
                        const std::string& model) {
    const auto path = write_adapter(folder_ / "adapter.safetensors", tensors);
    return Lora::open(*base_, {.path = path, .half = user}, {.half = model});
  };
  const AdapterTensors ref = named("transformer_ref.");
  EXPECT_EQ(with(ref, "", "ref2va").value().report().half, "ref2va");
  EXPECT_TRUE(with(ref, "", "ref2va").value().warnings().empty());
  const Lora unsure = with(ref, "", "").value();
  ASSERT_EQ(unsure.warnings().size(), 1U);
  EXPECT_THAT(unsure.warnings().front(), HasSubstr("nothing tells which half"));
  EXPECT_THAT(with(ref, "", "fl2va").error().message,
              AllOf(HasSubstr("ref2va half"), HasSubstr("fl2va half")));
  EXPECT_FALSE(with(good(), "ref2va", "fl2va"));
  EXPECT_FALSE(with(ref, "fl2va", ""));

  AdapterTensors both = named("transformer.");
  both.merge(named("transformer_ref."));
  EXPECT_THAT(with(both, "", "").error().message, HasSubstr("both halves"));
  for (const std::string half : {"fl2va", "ref2va"}) {
    for (const auto& lora : {with(both, half, ""), with(both, "", half)}) {
      ASSERT_TRUE(lora);
      EXPECT_EQ(lora->report().half, half);
      EXPECT_EQ(lora->report().matched, 2);
      EXPECT_EQ(lora->report().other_half, 2);
      ASSERT_EQ(lora->deltas().size(), 1U);
      EXPECT_EQ(lora->deltas().front().down->name.starts_with("transformer_ref."),
                half == "ref2va");
    }
  }
  EXPECT_EQ(with(good(), "ref2va", "ref2va").value().report().half, "ref2va");
  EXPECT_FALSE(with(good(), "t2va", ""));
}

TEST_F(LoraFile, StrengthAndAlphaThatAreNoNumbersAreErrors) {
  const auto path = write_adapter(folder_ / "adapter.safetensors", good());
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const auto lora = Lora::open(*base_, {.path = path, .strength = bad});
    ASSERT_FALSE(lora);
    EXPECT_EQ(lora.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(lora.error().message, HasSubstr("strength must be a finite number"));
    EXPECT_FALSE(Lora::open(*base_, {.path = path, .alpha = bad}));
  }
  EXPECT_FALSE(Lora::open(*base_, {.path = path, .alpha = 0.0F}));
  EXPECT_FALSE(Lora::open(*base_, {}));
}

TEST_F(LoraFile, AChangeTrainedOnAPrunedTransformerIsRefusedByAFullOne) {
  EXPECT_THAT(refusal({{"blocks.1.adaln_proj.linear.lora_A.weight", random_factor(2, 5, 1)},
                       {"blocks.1.adaln_proj.linear.lora_B.weight", random_factor(864, 2, 1)}}),
              HasSubstr("adaln lift"));
}

TEST_F(LoraFile, AdalnOnAPrunedBaseIsRejected) {
  base_ = open_component(test_data("golden/h3-micro-pruned/transformer.safetensors")).value();
  AdapterTensors tensors = good();
  tensors["blocks.1.adaln_proj.linear.lora_A.weight"] = random_factor(2, 36, 1);
  tensors["blocks.1.adaln_proj.linear.lora_B.weight"] = random_factor(864, 2, 1);
  tensors["time_embedder.proj_in.diff_b"] = {{40}, random_factor(1, 40, 1).values};
  EXPECT_THAT(refusal({}, tensors),
              AllOf(HasSubstr("3 of its 5"), HasSubstr("blocks.1.adaln_proj.linear"),
                    HasSubstr("adaln_t_table")));
  const Lora lora = open(tensors, true).value();
  EXPECT_EQ(lora.report().rejected, 3);
  EXPECT_EQ(lora.report().unmatched, 0);
  EXPECT_EQ(lora.warnings().size(), 1U);
  tensors.erase(std::string(kOut) + ".lora_A.weight");
  tensors.erase(std::string(kOut) + ".lora_B.weight");
  EXPECT_THAT(refusal({}, tensors, true), HasSubstr("none of its 3 tensors"));
}

TEST_F(LoraFile, DifferentScalesInOneFileAreAWarning) {
  AdapterTensors tensors = good();
  tensors[std::string(kOut) + ".alpha"] = {{1}, {2.0F}};
  tensors["blocks.1.mlp.fc2.lora_A.weight"] = random_factor(2, 80, 1);
  tensors["blocks.1.mlp.fc2.lora_B.weight"] = random_factor(48, 2, 1);
  const Lora lora = open(tensors).value();
  EXPECT_EQ(lora.report().min_scale, 0.5);
  EXPECT_EQ(lora.report().max_scale, 1.0);
  ASSERT_EQ(lora.warnings().size(), 1U);
  EXPECT_THAT(lora.warnings().front(), HasSubstr("0.5 to 1"));
}

TEST_F(LoraFile, FilesThatAreNoAdapterAreErrors) {
  EXPECT_FALSE(Lora::open(*base_, {.path = folder_ / "absent.safetensors"}));
  std::ofstream(folder_ / "text.safetensors") << "not a tensor file";
  EXPECT_FALSE(Lora::open(*base_, {.path = folder_ / "text.safetensors"}));
  const auto checkpoint =
      Lora::open(*base_, {.path = test_data("golden/h3-micro-pruned/transformer.safetensors")});
  ASSERT_FALSE(checkpoint);
  EXPECT_EQ(checkpoint.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace miniacc
