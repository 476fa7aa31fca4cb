#include "runtime/sigma_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/compare.h"
#include "support/golden.h"

namespace miniacc {
namespace {

using testing::Golden;
using ::testing::HasSubstr;
using testing::identical_to;

SigmaSchedule schedule_of(const std::string& recipe) {
  return make_schedule({.recipe = recipe}).value();
}

TEST(SigmaSchedule, GridsMatchTheReferenceSchedulerBitForBit) {
  const Golden golden("golden/schedule.safetensors");
  for (const int points : {2, 3, 5, 7, 9, 30, 50}) {
    for (const int shift : {12, 3, 6}) {
      const std::string name =
          "grid.points_" + std::to_string(points) + ".shift_" + std::to_string(shift) + ".sigmas";
      std::vector<float> sigmas;
      for (const float base : base_grid(points)) {
        sigmas.push_back(shift_sigma(base, static_cast<float>(shift)));
      }
      EXPECT_TRUE(identical_to(sigmas, golden.floats(name))) << name;
    }
  }
}

struct RecipeCase {
  std::string name;
  std::vector<float> video;
  std::vector<float> audio;
};
void PrintTo(const RecipeCase& recipe, std::ostream* out) { *out << recipe.name; }

class RecipeSigmas : public ::testing::TestWithParam<RecipeCase> {};

TEST_P(RecipeSigmas, AreThePublishedOnes) {
  const SigmaSchedule schedule = schedule_of(GetParam().name);
  // The tables of spec model.md §6.2 and §6.3 are printed to nine digits: one float ulp of slack.
  ASSERT_EQ(schedule.video.size(), GetParam().video.size());
  ASSERT_EQ(schedule.audio.size(), GetParam().audio.size());
  for (std::size_t i = 0; i < schedule.video.size(); ++i) {
    EXPECT_FLOAT_EQ(schedule.video[i], GetParam().video[i]) << i;
    EXPECT_FLOAT_EQ(schedule.audio[i], GetParam().audio[i]) << i;
  }
}

const std::vector<float> kFour12 = {1.0F, .972972989F, .923076928F, .800000012F, 0.0F};
const std::vector<float> kFour6 = {1.0F, .947368443F, .857142866F, .666666687F, 0.0F};
const std::vector<float> kFour3 = {1.0F, .899999976F, .75F, .5F, 0.0F};
const std::vector<float> kEight12 = {1.0F,        .988235295F, .972972989F,
                                     .952380955F, .923076928F, .878048778F,
                                     .800000012F, .631578922F, 0.0F};
const std::vector<float> kEight6 = {1.0F,        .976744175F, .947368443F, .909090936F, .857142866F,
                                    .782608688F, .666666687F, .461538464F, 0.0F};
const std::vector<float> kEight3 = {1.0F,        .954545438F, .899999976F, .833333313F, .75F,
                                    .642857134F, .5F,         .300000012F, 0.0F};

INSTANTIATE_TEST_SUITE_P(
    AllFewStepRecipes, RecipeSigmas,
    ::testing::Values(
        RecipeCase{"lightx2v4", kFour12, kFour3}, RecipeCase{"lightx2v4-768p", kFour6, kFour3},
        RecipeCase{"lightx2v8", kEight12, kEight3}, RecipeCase{"turbo4", kFour6, kFour3},
        RecipeCase{"turbo8", kEight6, kEight3},
        RecipeCase{"larry6",
                   {1.0F, .983606637F, .959999979F, .923076928F, .857142806F, .705882311F, 0.0F},
                   {1.0F, .93750006F, .857142806F, .75F, .599999964F, .375F, 0.0F}},
        RecipeCase{"fasth3-4",
                   {.999916553F, .972832501F, .923076928F, .800000012F, 0.0F},
                   {.999666393F, .899519563F, .75F, .5F, 0.0F}},
        RecipeCase{"taomate3",
                   {1.0F, .961165071F, .853333294F, 0.0F},
                   {1.0F, .860869527F, .592592597F, 0.0F}},
        RecipeCase{"pdmd2", {1.0F, .923076928F, 0.0F}, {1.0F, .75F, 0.0F}}));

TEST(SigmaSchedule, BaseRecipeHasFortyNineForwards) {
  const SigmaSchedule schedule = schedule_of("base");
  EXPECT_EQ(schedule.num_forwards(), 49U);
  EXPECT_FLOAT_EQ(schedule.video[1], .998266876F);
  EXPECT_FLOAT_EQ(schedule.video[48], .200000003F);
  EXPECT_FLOAT_EQ(schedule.audio[48], .0588235296F);
  EXPECT_EQ(schedule.video.back(), 0.0F);
}

TEST(SigmaSchedule, EveryRecipeIsListedAndValid) {
  EXPECT_EQ(all_recipes().size(), 11U);
  for (const Recipe& recipe : all_recipes()) {
    const auto schedule = make_schedule({.recipe = recipe.name});
    ASSERT_TRUE(schedule) << recipe.name << ": " << schedule.error().message;
    EXPECT_EQ(static_cast<std::int64_t>(schedule->num_forwards()), recipe.num_forwards());
  }
}

TEST(SigmaSchedule, StepsCountForwards) {
  EXPECT_EQ(make_schedule({.recipe = "base", .steps = 20}).value().num_forwards(), 20U);
  // As many steps as the recipe has keeps the recipe's own grid.
  EXPECT_EQ(make_schedule({.recipe = "taomate3", .steps = 3}).value().video,
            schedule_of("taomate3").video);
}

TEST(SigmaSchedule, ExplicitVideoSigmasGiveTheAudioOnes) {
  const SigmaSchedule schedule =
      make_schedule({.video_sigmas = schedule_of("lightx2v4").video}).value();
  ASSERT_EQ(schedule.audio.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(schedule.audio[i], kFour3[i], 1e-6F);
  }
}

TEST(SigmaSchedule, ShiftsCanBeReplaced) {
  EXPECT_FLOAT_EQ(make_schedule({.recipe = "lightx2v4", .video_shift = 6.0F}).value().video[1],
                  .947368443F);
}

struct Refusal {
  std::string what;
  ScheduleOptions options;
};
void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.what; }

class ScheduleRefusal : public ::testing::TestWithParam<Refusal> {};

TEST_P(ScheduleRefusal, NamesTheOption) {
  const auto schedule = make_schedule(GetParam().options);
  ASSERT_FALSE(schedule);
  EXPECT_EQ(schedule.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(schedule.error().message, HasSubstr(GetParam().what));
}

INSTANTIATE_TEST_SUITE_P(
    Options, ScheduleRefusal,
    ::testing::Values(Refusal{"no recipe 'turbo'", {.recipe = "turbo"}},
                      Refusal{"--steps", {.steps = 0}}, Refusal{"--steps", {.steps = 1000000}},
                      Refusal{"--flow-shift", {.video_shift = -1.0F}},
                      Refusal{"--audio-flow-shift", {.audio_shift = 0.0F / 1.0F}},
                      Refusal{"--sigmas", {.video_sigmas = {1.0F}}},
                      Refusal{"fall strictly", {.video_sigmas = {1.0F, 0.5F, 0.5F, 0.0F}}},
                      Refusal{"end in 0", {.video_sigmas = {1.0F, 0.5F}}},
                      Refusal{"at most 1", {.video_sigmas = {1.5F, 0.0F}}},
                      Refusal{"--steps", {.steps = 1, .video_sigmas = {1.0F, 0.0F}}},
                      Refusal{"--sigmas", {.audio_sigmas = {1.0F, 0.0F}}},
                      Refusal{"walk together",
                              {.video_sigmas = {1.0F, 0.0F}, .audio_sigmas = {1.0F, 0.5F, 0.0F}}}));

}  // namespace
}  // namespace miniacc
