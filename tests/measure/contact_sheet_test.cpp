#include "measure/contact_sheet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace miniacc::measure {
namespace {

using ::testing::HasSubstr;

/// Frames of one grey each: 10, 20, 30, ...
Clip grey_clip(int width, int height, std::int64_t num_frames) {
  Clip clip;
  clip.width = width;
  clip.height = height;
  clip.num_frames = num_frames;
  for (std::int64_t f = 0; f < num_frames; ++f) {
    clip.frames.insert(clip.frames.end(), static_cast<std::size_t>(3 * width * height),
                       static_cast<std::uint8_t>(10 * (f + 1)));
  }
  return clip;
}

void add_sound(Clip& clip, const std::vector<float>& left, const std::vector<float>& right) {
  clip.sample_rate_hz = 32000;
  clip.channels = 2;
  clip.audio = left;
  clip.audio.insert(clip.audio.end(), right.begin(), right.end());
}

std::array<int, 3> pixel(const RgbImage& image, std::int64_t x, std::int64_t y) {
  const auto at = static_cast<std::size_t>(3 * (y * image.width + x));
  return {image.pixels[at], image.pixels[at + 1], image.pixels[at + 2]};
}

constexpr std::array<int, 3> kPaper = {255, 255, 255};
constexpr std::array<int, 3> kStrip = {238, 240, 243};

TEST(ContactSheet, ShowsFirstAndLastFrameAndSomeBetween) {
  const Clip clip = grey_clip(6, 4, 9);
  const RgbImage sheet = contact_sheet({&clip, 1}, {.num_frames = 3, .gap = 2}).value();
  EXPECT_EQ(sheet.width, 3 * 6 + 2 * 2);
  EXPECT_EQ(sheet.height, 4);
  EXPECT_EQ(pixel(sheet, 0, 0)[0], 10);
  EXPECT_EQ(pixel(sheet, 5, 3)[0], 10);
  EXPECT_EQ(pixel(sheet, 6, 0), kPaper);
  EXPECT_EQ(pixel(sheet, 8, 0)[0], 50);
  EXPECT_EQ(pixel(sheet, 21, 3)[0], 90);
}

TEST(ContactSheet, AShortClipShowsEachFrameOnce) {
  const Clip clip = grey_clip(6, 4, 2);
  const RgbImage sheet = contact_sheet({&clip, 1}, {.num_frames = 5, .gap = 0}).value();
  EXPECT_EQ(sheet.width, 12);
  const Clip still = grey_clip(6, 4, 1);
  EXPECT_EQ(contact_sheet({&still, 1}, {.num_frames = 5}).value().width, 6);
}

TEST(ContactSheet, DrawsLeftAboveRightAtTheirLevels) {
  Clip clip = grey_clip(4, 2, 1);
  // The left channel jumps from full scale to silence; the right one stays at minus one half.
  add_sound(clip, {1, 1, 0, 0}, {-0.5F, -0.5F, -0.5F, -0.5F});
  const RgbImage sheet = contact_sheet({&clip, 1}, {.gap = 1, .wave_height = 9}).value();
  ASSERT_EQ(sheet.height, 2 + 1 + 9 + 1 + 9);
  EXPECT_NE(pixel(sheet, 0, 3), kStrip) << "full scale is the strip's first row";
  EXPECT_EQ(pixel(sheet, 0, 7), kStrip);
  EXPECT_NE(pixel(sheet, 3, 7), kStrip) << "silence is the strip's middle";
  EXPECT_EQ(pixel(sheet, 3, 3), kStrip);
  EXPECT_NE(pixel(sheet, 2, 13 + 6), kStrip) << "minus one half is three quarters down";
  EXPECT_EQ(pixel(sheet, 2, 12), kPaper);
}

TEST(ContactSheet, SoundThatIsNoNumberIsDrawnAsSilence) {
  Clip clip;
  add_sound(clip, {NAN, INFINITY, -INFINITY}, {0, 0, 0});
  const RgbImage sheet = contact_sheet({&clip, 1}).value();
  EXPECT_EQ(sheet.width, 640);
  EXPECT_EQ(sheet.height, 2 * 36 + 4);
}

TEST(ContactSheet, ClipsOfDifferentSizesStandBelowEachOther) {
  const std::vector<Clip> clips = {grey_clip(6, 4, 2), grey_clip(10, 8, 2)};
  const RgbImage sheet = contact_sheet(clips, {.gap = 1}).value();
  EXPECT_EQ(sheet.width, 21);
  EXPECT_EQ(sheet.height, 4 + 3 + 8);
  EXPECT_EQ(pixel(sheet, 14, 0), kPaper);
  EXPECT_EQ(pixel(sheet, 0, 7)[0], 10);
}

TEST(ContactSheet, RefusesWhatHasNoSheet) {
  const Clip nothing;
  const auto empty = contact_sheet({&nothing, 1});
  ASSERT_FALSE(empty);
  EXPECT_THAT(empty.error().message, HasSubstr("neither frames nor sound"));
  const Clip clip = grey_clip(6, 4, 2);
  const auto huge = contact_sheet({&clip, 1}, {.max_pixels = 40});
  ASSERT_FALSE(huge);
  EXPECT_THAT(huge.error().message, HasSubstr("40 pixels"));
}

}  // namespace
}  // namespace miniacc::measure
