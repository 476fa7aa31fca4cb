#include "io/media/audio_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace miniacc {
namespace {

TEST(AudioSamples, FitToTheFramesForEveryLegalLength) {
  EXPECT_EQ(samples_for_frames(124), 165333);  // spec: 165,333.3
  EXPECT_EQ(samples_for_frames(107), 142667);  // 142,666.7
  std::int64_t joined = 0;
  for (std::int64_t frames = 5; frames <= 362; frames += 17) {
    const double exact = static_cast<double>(frames) * 32000.0 / 24.0;
    EXPECT_EQ(samples_for_frames(frames), std::llround(exact));
    joined += samples_for_frames(frames);
  }
  // Twenty-two joined clips of all lengths drift by less than one AAC frame.
  std::int64_t frames_joined = 0;
  for (std::int64_t frames = 5; frames <= 362; frames += 17) {
    frames_joined += frames;
  }
  EXPECT_LT(std::abs(joined - samples_for_frames(frames_joined)), 1024);
}

TEST(AudioSamples, FitCutsAndPadsEachChannel) {
  const std::vector<float> stereo = {1, 2, 3, 4, 5, 6};  // left 1 2 3, right 4 5 6
  EXPECT_EQ(fit_audio(stereo, 2, 24, 24), (std::vector<float>{1, 2, 4, 5}));
  EXPECT_EQ(fit_audio(stereo, 4, 24, 24), (std::vector<float>{1, 2, 3, 0, 4, 5, 6, 0}));
  EXPECT_EQ(fit_audio(stereo, 3, 24, 24), stereo);
  EXPECT_THROW(fit_audio(std::vector<float>{1, 2, 3}, 1), InternalError);
}

TEST(AudioSamples, Pcm16ClipsAndTruncatesTowardZero) {
  EXPECT_EQ(to_pcm16(1.0F), 32767);
  EXPECT_EQ(to_pcm16(7.0F), 32767);
  EXPECT_EQ(to_pcm16(-1.0F), -32767);
  EXPECT_EQ(to_pcm16(-7.0F), -32767);
  EXPECT_EQ(to_pcm16(0.5F), 16383);    // 16383.5
  EXPECT_EQ(to_pcm16(-0.5F), -16383);  // -16383.5
  EXPECT_EQ(to_pcm16(1e-6F), 0);
}

TEST(AudioSamples, CheckFiniteNamesChannelAndSample) {
  std::vector<float> stereo(8, 0.0F);
  EXPECT_TRUE(check_finite(stereo));
  stereo[6] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(check_finite(stereo).error().message,
              ::testing::HasSubstr("sample 2 of the right channel"));
  stereo[1] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(check_finite(stereo).error().message,
              ::testing::HasSubstr("sample 1 of the left channel"));
}

}  // namespace
}  // namespace miniacc
