#include "measure/sound.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "support/random.h"

namespace miniacc::measure {
namespace {

/// A clip of sound only; wave(time, channel).
Clip sound_clip(double seconds, int rate_hz, const std::function<double(double, int)>& wave,
                int channels = 2) {
  Clip clip;
  clip.sample_rate_hz = rate_hz;
  clip.channels = channels;
  const auto samples = static_cast<int>(seconds * rate_hz);
  for (int channel = 0; channel < channels; ++channel) {
    for (int i = 0; i < samples; ++i) {
      clip.audio.push_back(static_cast<float>(wave(static_cast<double>(i) / rate_hz, channel)));
    }
  }
  return clip;
}

double sine(double hertz, double time_s) { return std::sin(2 * std::numbers::pi * hertz * time_s); }

TEST(Sound, PitchIsMeasuredAtEveryRate) {
  for (const int rate_hz : {16000, 32000, 44100, 48000}) {
    for (const double hertz : {123.4, 240.0, 363.3, 520.0, 1120.0, 3456.7}) {
      const Clip clip =
          sound_clip(1.6, rate_hz, [&](double t, int) { return 0.3 * sine(hertz, t); });
      EXPECT_NEAR(measure_pitch(clip).value.value_or(0), hertz, 0.1) << rate_hz;
    }
  }
}

TEST(Sound, PitchOfOppositePhasesDoesNotCancel) {
  const Clip clip = sound_clip(
      1.0, 32000, [](double t, int channel) { return (channel == 0 ? 0.3 : -0.3) * sine(520, t); });
  EXPECT_NEAR(measure_pitch(clip).value.value_or(0), 520, 0.1);
}

TEST(Sound, NoiseSilenceAndAbsenceHaveNoPitch) {
  const auto noise = testing::random_normal(2 * 52000, 7);
  Clip noisy = sound_clip(1.625, 32000, [](double, int) { return 0.0; });
  EXPECT_EQ(measure_pitch(noisy).reason, "the clip is silent");
  for (std::size_t i = 0; i < noisy.audio.size(); ++i) {
    noisy.audio[i] = 0.1F * noise[i];
  }
  EXPECT_EQ(measure_pitch(noisy).reason, "no tone stands out of the sound");
  EXPECT_EQ(measure_pitch(Clip()).reason, "the clip has no sound");
  Clip fast = noisy;
  fast.sample_rate_hz = 2'000'000'000;
  EXPECT_FALSE(measure_pitch(fast).value);
}

TEST(Sound, PitchClassesAreSixPercentWide) {
  EXPECT_EQ(pitch_class(240.0).value, 0U);
  EXPECT_EQ(pitch_class(253.0).value, 0U);
  EXPECT_EQ(pitch_class(1120.0).value, 4U);
  EXPECT_EQ(pitch_class(300.0).value, std::nullopt);
  EXPECT_EQ(pitch_class(300.0).reason, "300 Hz is near none of the tones");
  EXPECT_EQ(pitch_class(Measured<double>::unknown("why")).reason, "why");
}

TEST(Sound, BeepsAreFoundWhereTheyStart) {
  const std::vector<double> truth = {0.0, 0.413, 0.91, 1.377};
  const auto noise = testing::random_normal(2 * 52000, 3);
  Clip clip = sound_clip(1.625, 32000, [&](double t, int) {
    double level = 0.0;
    for (const double begin : truth) {
      level += t >= begin ? std::exp(-(t - begin) / 0.05) : 0.0;
    }
    return 0.3 * level * sine(760, t);
  });
  for (std::size_t i = 0; i < clip.audio.size(); ++i) {
    clip.audio[i] += 0.003F * noise[i];
  }
  const auto beeps = find_beeps(clip);
  ASSERT_EQ(beeps.size(), truth.size());
  for (std::size_t i = 0; i < truth.size(); ++i) {
    EXPECT_NEAR(beeps[i], truth[i], 0.002);
  }
}

TEST(Sound, ARunningToneHasNoBeeps) {
  EXPECT_TRUE(find_beeps(sound_clip(1.6, 32000, [](double t, int) {
                return 0.3 * std::min(1.0, t / 0.01) * sine(240, t);
              })).empty());
  EXPECT_TRUE(find_beeps(sound_clip(1.6, 32000, [](double t, int) {
                return 0.3 * (0.7 + 0.3 * sine(1.7, t)) * sine(240, t);
              })).empty());
  EXPECT_TRUE(find_beeps(sound_clip(1.6, 32000, [](double, int) { return 0.0; })).empty());
  EXPECT_TRUE(find_beeps(Clip()).empty());
}

TEST(Sound, PanFollowsTheEqualPowerLaw) {
  for (const double pan : {0.0, 0.2, 0.5, 0.9, 1.0}) {
    const double angle = pan * std::numbers::pi / 2;
    const Clip clip = sound_clip(0.5, 32000, [&](double t, int channel) {
      return 0.3 * (channel == 0 ? std::cos(angle) : std::sin(angle)) * sine(360, t);
    });
    EXPECT_NEAR(pan_at(clip, 0.1, 0.04).value.value_or(-1), pan, 1e-4);
    EXPECT_EQ(pan_at(clip, 9.0, 0.04).reason, "silence");
  }
  const Clip mono = sound_clip(
      0.5, 32000, [](double t, int) { return sine(360, t); }, 1);
  EXPECT_EQ(pan_at(mono, 0.1, 0.04).reason, "the sound is not stereo");
  EXPECT_EQ(pan_at(Clip(), 0.1, 0.04).reason, "the clip has no sound");
}

}  // namespace
}  // namespace miniacc::measure
