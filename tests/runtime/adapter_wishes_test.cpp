#include "runtime/adapter_wishes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapters/adapter_files.h"
#include "runtime/request.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Wishes : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const testing::Metadata& metadata = {}) {
    return testing::write_adapter(
        folder_ / (name + ".safetensors"),
        {{"blocks.0.mlp.fc2.lora_A.weight", testing::random_factor(2, 80, 1)},
         {"blocks.0.mlp.fc2.lora_B.weight", testing::random_factor(48, 2, 1)}},
        metadata);
  }
  GenerateRequest request(const std::vector<LoraRequest>& loras) {
    GenerateRequest request;
    request.prompt = "a fox";
    request.output = "unused.mp4";
    request.loras = loras;
    return request;
  }
  testing::TempDir folder_;
  std::filesystem::path turbo_ = write("minimax_h3_fl2v_turbo_4step_v1.0_768p_bf16");
  std::filesystem::path turbo8_ = write("minimax_h3_fl2v_turbo_8step_v1.0_bf16");
  std::filesystem::path style_ = write("style");
};

TEST_F(Wishes, TheRecipeOfTheAdapterIsAppliedAndTold) {
  GenerateRequest wanted = request({{style_}, {turbo_}});
  const AdapterWishes wishes = apply_adapter_wishes(wanted).value();
  EXPECT_EQ(wanted.sampling.recipe, "lightx2v4-768p");
  ASSERT_EQ(wishes.notes.size(), 1U);
  EXPECT_THAT(wishes.notes.front(), AllOf(HasSubstr("4 forwards, shifts 6 / 3"),
                                          HasSubstr("turbo_4step"), HasSubstr("known file names")));
  EXPECT_TRUE(wishes.warnings.empty());
  EXPECT_EQ(wishes.identities.size(), 2U);
  // Metadata count as much as names, strength 0 does not.
  GenerateRequest by_metadata = request({{write("a", {{"recipe", "taomate3"}})}});
  ASSERT_TRUE(apply_adapter_wishes(by_metadata));
  EXPECT_EQ(by_metadata.sampling.recipe, "taomate3");
  GenerateRequest off = request({{turbo_, 0.0F}});
  ASSERT_TRUE(apply_adapter_wishes(off));
  EXPECT_EQ(off.sampling.recipe, "");
  EXPECT_EQ(prepare_request(off).value().request.sampling.recipe, "base");
  EXPECT_EQ(prepare_request(off).value().schedule.num_forwards(), 49U);
  EXPECT_EQ(prepare_request(wanted).value().schedule.num_forwards(), 4U);
}

TEST_F(Wishes, ContradictingOptionsAreHonouredAndReported) {
  GenerateRequest named = request({{turbo_}});
  named.sampling.recipe = "base";
  const AdapterWishes wishes = apply_adapter_wishes(named).value();
  EXPECT_EQ(named.sampling.recipe, "base");
  ASSERT_EQ(wishes.warnings.size(), 1U);
  EXPECT_THAT(wishes.warnings.front(),
              AllOf(HasSubstr("made for recipe lightx2v4-768p"), HasSubstr("--recipe base")));
  // Another name for the same schedule contradicts nothing.
  GenerateRequest same = request({{turbo_}});
  same.sampling.recipe = "turbo4";
  EXPECT_TRUE(apply_adapter_wishes(same).value().warnings.empty());

  GenerateRequest steps = request({{turbo_}});
  steps.sampling.steps = 8;
  steps.sampling.video_shift = 12.0F;
  steps.sampling.audio_shift = 3.0F;
  const AdapterWishes changed = apply_adapter_wishes(steps).value();
  EXPECT_EQ(steps.sampling.recipe, "lightx2v4-768p");
  EXPECT_EQ(steps.sampling.steps, 8);
  ASSERT_EQ(changed.warnings.size(), 2U);
  EXPECT_THAT(changed.warnings[0], HasSubstr("--steps 8 is used"));
  EXPECT_THAT(changed.warnings[1], HasSubstr("--flow-shift 12 is used"));

  // The request of a finished clip carries the sigmas of its recipe.
  GenerateRequest again = request({{turbo_}});
  ASSERT_TRUE(apply_adapter_wishes(again));
  GenerateRequest stored = prepare_request(again).value().request;
  EXPECT_TRUE(apply_adapter_wishes(stored).value().warnings.empty());
  stored.sampling.video_sigmas[1] -= 0.01F;
  EXPECT_EQ(apply_adapter_wishes(stored).value().warnings.size(), 1U);
}

TEST_F(Wishes, TwoAdaptersThatDisagreeNeedARecipe) {
  GenerateRequest both = request({{turbo_}, {turbo8_}});
  const auto refused = apply_adapter_wishes(both);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr(turbo_.string()),
                                             HasSubstr(turbo8_.string()), HasSubstr("--recipe")));
  both.sampling.recipe = "lightx2v8";
  const AdapterWishes wishes = apply_adapter_wishes(both).value();
  EXPECT_EQ(both.sampling.recipe, "lightx2v8");
  ASSERT_EQ(wishes.warnings.size(), 2U);
  EXPECT_THAT(wishes.warnings[0], HasSubstr("both few-step"));
  EXPECT_THAT(wishes.warnings[1], HasSubstr(turbo_.string()));
}

TEST_F(Wishes, ARecipeOfNothingIsAnErrorThatNamesIt) {
  GenerateRequest unknown = request({{write("b", {{"recipe", "warp9"}})}});
  const auto refused = apply_adapter_wishes(unknown);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("warp9"));
  GenerateRequest absent = request({{folder_ / "absent.safetensors"}});
  EXPECT_FALSE(apply_adapter_wishes(absent));
}

TEST_F(Wishes, TagsOfThePromptBecomeAdapters) {
  GenerateRequest tagged = request({{style_, 0.5F}});
  tagged.prompt = "a <lora:minimax_h3_fl2v_turbo_8step_v1.0_bf16:0.75> fox";
  EXPECT_THAT(apply_adapter_wishes(tagged).error().message, HasSubstr("--lora-dir"));
  tagged.lora_dir = folder_ / "";
  ASSERT_TRUE(apply_adapter_wishes(tagged));
  EXPECT_EQ(tagged.prompt, "a fox");
  ASSERT_EQ(tagged.loras.size(), 2U);
  EXPECT_EQ(tagged.loras[1].path, turbo8_);
  EXPECT_EQ(tagged.loras[1].strength, 0.75F);
  EXPECT_EQ(tagged.sampling.recipe, "lightx2v8");
  tagged.prompt = "a <lora:absent> fox";
  EXPECT_THAT(apply_adapter_wishes(tagged).error().message, HasSubstr("style"));
}

}  // namespace
}  // namespace miniacc
