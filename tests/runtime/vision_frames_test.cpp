#include "runtime/vision_frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/vision_resize.h"
#include "support/test_picture.h"

namespace miniacc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::test_picture;

RgbClip make_clip(std::int64_t num_frames, std::int64_t height, std::int64_t width) {
  RgbClip clip{.width = width, .height = height, .num_frames = num_frames, .pixels = {}};
  for (std::int64_t i = 0; i < num_frames; ++i) {
    const RgbImage frame = test_picture(height, width, i);
    clip.pixels.insert(clip.pixels.end(), frame.pixels.begin(), frame.pixels.end());
  }
  return clip;
}

// Spec text_encoder.md §10.4.
TEST(SampledFrames, WorkedExamples) {
  EXPECT_THAT(sampled_frames(13).value(), ElementsAre(0, 12));
  EXPECT_THAT(sampled_frames(24).value(), ElementsAre(0, 12));
  EXPECT_THAT(sampled_frames(25).value(), ElementsAre(0, 12, 24));
  const auto clip = sampled_frames(124).value();
  EXPECT_EQ(clip.size(), 11U);
  EXPECT_EQ(clip.back(), 120);
  EXPECT_EQ(num_video_blocks(11), 6);
  EXPECT_EQ(sampled_frames(345)->size(), 29U);
  EXPECT_EQ(num_video_blocks(29), 15);
}

TEST(SampledFrames, RefusesAVideoOfOneSample) {
  for (const std::int64_t frames : {12, 1, 0, -5}) {
    const auto samples = sampled_frames(frames);
    ASSERT_FALSE(samples);
    EXPECT_EQ(samples.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(samples.error().message, HasSubstr(std::to_string(frames) + " frames"));
    EXPECT_THAT(samples.error().message, HasSubstr("at least 13 (0.54 seconds)"));
  }
  EXPECT_FALSE(prepare_vision_frames(make_clip(12, 32, 32)));
}

TEST(VisionFrames, APictureOfItsSizeStaysAsItIs) {
  const RgbImage picture = test_picture(256, 288, 3);
  const VisionFrames frames = prepare_vision_frames(picture).value();
  ASSERT_EQ(frames.size(), 1U);
  EXPECT_EQ(frames[0].pixels, picture.pixels);
}

TEST(VisionFrames, ASmallPictureIsEnlarged) {
  const RgbImage picture = test_picture(100, 150, 3);
  const VisionFrames frames = prepare_vision_frames(picture).value();
  EXPECT_EQ(frames[0].height, 224);
  EXPECT_EQ(frames[0].width, 320);
  EXPECT_EQ(frames[0].pixels, resize_for_vision(picture, 320, 224).pixels);
  EXPECT_FALSE(prepare_vision_frames(test_picture(1, 640, 0)));
  EXPECT_FALSE(prepare_vision_frames(RgbImage{}));
}

TEST(VisionFrames, AClipBecomesPairsAndTheLastFrameStandsTwice) {
  const RgbClip clip = make_clip(30, 64, 96);
  const auto blocks = prepare_vision_frames(clip).value();
  ASSERT_EQ(blocks.size(), 2U);
  ASSERT_EQ(blocks[0].size(), 2U);
  ASSERT_EQ(blocks[1].size(), 2U);
  EXPECT_EQ(blocks[0][0].pixels, test_picture(64, 96, 0).pixels);
  EXPECT_EQ(blocks[0][1].pixels, test_picture(64, 96, 12).pixels);
  EXPECT_EQ(blocks[1][0].pixels, test_picture(64, 96, 24).pixels);
  EXPECT_EQ(blocks[1][1].pixels, test_picture(64, 96, 24).pixels);
}

// All frames get one size, which depends on how many there are.
TEST(VisionFrames, AClipIsResizedAsAWhole) {
  const RgbClip clip = make_clip(13, 40, 72);
  const auto blocks = prepare_vision_frames(clip).value();
  ASSERT_EQ(blocks.size(), 1U);
  EXPECT_EQ(blocks[0][1].height, 32);
  EXPECT_EQ(blocks[0][1].width, 64);
  EXPECT_EQ(blocks[0][1].pixels, resize_for_vision(test_picture(40, 72, 12), 64, 32).pixels);
  RgbClip cut = clip;
  cut.pixels.pop_back();
  EXPECT_THROW((void)prepare_vision_frames(cut), InternalError);
}

}  // namespace
}  // namespace miniacc
