#include "model/audio_vae/sound_check.h"

#include <gtest/gtest.h>

#include <limits>

#include "device/cpu_device.h"
#include "support/random.h"

namespace miniacc::audio_vae {
namespace {

SoundReport check(std::vector<float> values) {
  CpuDevice device;
  const auto length = static_cast<std::int64_t>(values.size()) / 2;
  const Tensor samples = testing::make_tensor(device, {2, length}, values);
  return check_sound(samples.view());
}

TEST(SoundCheck, MovingSoundIsSound) {
  const SoundReport report = check({0.0F, 0.5F, -0.25F, 0.0F, 0.0F, 0.0F});
  EXPECT_EQ(report.state, SoundState::kSound);  // one silent side is sound still
  EXPECT_EQ(report.peak, 0.5F);
  EXPECT_EQ(report.largest_swing, 0.75F);
}

TEST(SoundCheck, StuckLinesAreFlat) {
  EXPECT_EQ(check({-1, -1, -1, -1}).state, SoundState::kFlat);
  EXPECT_EQ(check({-1, -1, 1, 1}).state, SoundState::kFlat);  // a constant of its own a side
  EXPECT_EQ(check({0, 0, 0, 0}).state, SoundState::kFlat);
  EXPECT_EQ(check({0, 1e-6F, 0, 0}).state, SoundState::kFlat);
  EXPECT_EQ(check({}).state, SoundState::kFlat);
}

TEST(SoundCheck, NonFiniteSamplesAreCounted) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const SoundReport report = check({0.0F, nan, 0.5F, -infinity});
  EXPECT_EQ(report.state, SoundState::kNonFinite);
  EXPECT_EQ(report.num_non_finite, 2);
  EXPECT_EQ(report.peak, 0.5F);
}

TEST(SoundCheck, StatesHaveNames) {
  EXPECT_STREQ(sound_state_name(SoundState::kSound), "sound");
  EXPECT_STREQ(sound_state_name(SoundState::kFlat), "flat");
  EXPECT_STREQ(sound_state_name(SoundState::kNonFinite), "non_finite");
}

}  // namespace
}  // namespace miniacc::audio_vae
