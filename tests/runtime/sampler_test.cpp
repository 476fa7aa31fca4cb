#include "runtime/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "device/cpu_device.h"
#include "support/compare.h"
#include "support/golden.h"
#include "support/random.h"

namespace miniacc {
namespace {

using testing::Golden;
using ::testing::HasSubstr;

TEST(EulerStep, MatchesTheReferenceSchedulerBitForBit) {
  const Golden golden("golden/schedule.safetensors");
  for (const std::string name : {"points_5.shift_12", "points_5.shift_3", "taomate3.video",
                                 "fasth3_4.video", "fasth3_4.audio"}) {
    const std::string prefix = "euler." + name + ".";
    const std::vector<float> sigmas = golden.floats(prefix + "sigmas");
    std::vector<float> sample = golden.floats(prefix + "sample_0");
    for (std::size_t i = 0; i + 1 < sigmas.size(); ++i) {
      euler_step(sample, golden.floats(prefix + "velocity_" + std::to_string(i)), sigmas[i],
                 sigmas[i + 1]);
      EXPECT_TRUE(
          testing::identical_to(sample, golden.floats(prefix + "sample_" + std::to_string(i + 1))))
          << prefix << i;
    }
  }
}

TEST(EulerStep, WorkedExampleOfTheSpec) {
  std::vector<float> x = {0.5F};  // spec model.md §9 example 10
  euler_step(x, std::vector<float>{-1.25F}, .972972989F, .923076928F);
  EXPECT_FLOAT_EQ(x[0], .4376299381F);
}

TEST(EulerStep, AudioWalksItsOwnSigmas) {
  // Spec model.md §9 example 7: the step of the audio stream beside a video step of another size.
  std::vector<float> x = {.37F};
  euler_step(x, std::vector<float>{.9F}, .9F, .75F);
  EXPECT_NEAR(x[0], .505F, 1e-6F);
  x = {.37F};
  euler_step(x, std::vector<float>{.9F}, .5F, 0.0F);
  EXPECT_NEAR(x[0], .82F, 1e-6F);
}

TEST(EulerStep, LastStepLandsOnTheCleanPrediction) {
  std::vector<float> x = {0.5F, -1.0F};
  euler_step(x, std::vector<float>{0.25F, 2.0F}, 0.5F, 0.0F);
  EXPECT_EQ(x, (std::vector<float>{0.625F, 0.0F}));
}

class Sampler : public ::testing::Test {
 protected:
  LatentRows rows(std::uint64_t seed) {
    return {testing::random_tensor(device_, {6, 8}, seed),
            testing::random_tensor(device_, {4, 3}, seed + 1)};
  }
  CpuDevice device_;
};

TEST_F(Sampler, ExactVelocityLandsOnTheTargetInBothStreams) {
  // W22: with a model that knows the target, every schedule ends there, whatever the shifts.
  const LatentRows target = rows(7);
  for (const Recipe& recipe : all_recipes()) {
    const SigmaSchedule schedule = make_schedule({.recipe = recipe.name}).value();
    LatentRows latents = rows(1);
    const auto model = [&](const LatentRows& now, float t_video, float t_audio,
                           std::int64_t) -> Result<LatentRows> {
      LatentRows velocity = rows(0);
      for (std::size_t i = 0; i < now.video.f32().size(); ++i) {
        velocity.video.f32()[i] = (target.video.f32()[i] - now.video.f32()[i]) / (1.0F - t_video);
      }
      for (std::size_t i = 0; i < now.audio.f32().size(); ++i) {
        velocity.audio.f32()[i] = (target.audio.f32()[i] - now.audio.f32()[i]) / (1.0F - t_audio);
      }
      return velocity;
    };
    EXPECT_EQ(sample_euler(schedule, latents, model).value(), recipe.num_forwards());
    EXPECT_TRUE(testing::close_to(latents.video.f32(), target.video.f32(), 1e-5)) << recipe.name;
    EXPECT_TRUE(testing::close_to(latents.audio.f32(), target.audio.f32(), 1e-5)) << recipe.name;
  }
}

TEST_F(Sampler, NonFiniteLatentEndsTheWalkAtItsStep) {
  LatentRows latents = rows(1);
  std::int64_t calls = 0;
  const auto model = [&](const LatentRows&, float, float, std::int64_t step) -> Result<LatentRows> {
    ++calls;
    LatentRows velocity = rows(2);
    if (step == 1) {
      velocity.audio.f32()[3] = std::numeric_limits<float>::quiet_NaN();
    }
    return velocity;
  };
  const auto forwards =
      sample_euler(make_schedule({.recipe = "lightx2v4"}).value(), latents, model);
  ASSERT_FALSE(forwards);
  EXPECT_THAT(forwards.error().message,
              HasSubstr("audio latents are not finite after step 2 of 4"));
  EXPECT_EQ(calls, 2);
}

TEST_F(Sampler, ErrorsOfTheModelPassThrough) {
  LatentRows latents = rows(1);
  const auto model = [](const LatentRows&, float, float, std::int64_t) -> Result<LatentRows> {
    return fail(ErrorCode::kIo, "the weights went away");
  };
  const auto forwards = sample_euler(make_schedule({}).value(), latents, model);
  ASSERT_FALSE(forwards);
  EXPECT_EQ(forwards.error().message, "the weights went away");
}

TEST_F(Sampler, PatchifyMatchesTheReferenceAndRoundTrips) {
  const Golden golden("golden/packing.safetensors");
  const Shape shape = {24, 2, 4, 6};
  const Tensor latents = testing::make_tensor(device_, shape, golden.floats("patchify.latents"));
  const Tensor patched = patchify(device_, latents.view());
  EXPECT_TRUE(testing::identical_to(patched.f32(), golden.floats("patchify.rows")));
  EXPECT_TRUE(testing::identical_to(unpatchify(device_, patched.view(), shape).f32(),
                                    golden.floats("patchify.latents")));
}

}  // namespace
}  // namespace miniacc
