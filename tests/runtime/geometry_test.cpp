#include "runtime/geometry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/golden.h"

namespace miniacc {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

ClipGeometry fit(std::int64_t width, std::int64_t height, std::int64_t frames) {
  std::vector<std::string> notes;
  return fit_geometry(width, height, frames, notes).value();
}

TEST(Geometry, ReleasedWorkload) {
  std::vector<std::string> notes;
  const ClipGeometry geometry = fit_geometry(1344, 768, 124, notes).value();
  EXPECT_THAT(notes, IsEmpty());
  EXPECT_EQ(geometry.latent_frames, 37);
  EXPECT_EQ(geometry.latent_height, 48);
  EXPECT_EQ(geometry.latent_width, 84);
  EXPECT_EQ(geometry.audio_latents, 207);
}

TEST(Geometry, FrameTableOfTheReference) {
  const testing::Golden golden("golden/packing.safetensors");
  const auto frames = golden.integers("geometry.frames");
  const auto latents = golden.integers("geometry.num_latent_frames");
  const auto audio = golden.integers("geometry.num_audio_latents");
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const ClipGeometry geometry = fit(64, 64, frames[i]);
    EXPECT_EQ(geometry.num_frames, frames[i]);
    EXPECT_EQ(geometry.latent_frames, latents[i]) << frames[i];
    EXPECT_EQ(geometry.audio_latents, audio[i]) << frames[i];
  }
}

TEST(Geometry, EveryCountFromOneIsRoundedUpToTheGrid) {
  for (std::int64_t frames = 1; frames <= 400; ++frames) {
    const std::int64_t fitted = round_up_frames(frames);
    EXPECT_GE(fitted, frames);
    EXPECT_EQ((fitted - 5) % 17, 0);
    EXPECT_LT(fitted - frames, frames < 5 ? 5 : 17);
  }
}

TEST(Geometry, RoundingIsSaidAloud) {
  std::vector<std::string> notes;
  const ClipGeometry geometry = fit_geometry(1343, 31, 125, notes).value();
  EXPECT_EQ(geometry.width, 1344);
  EXPECT_EQ(geometry.height, 32);
  EXPECT_EQ(geometry.num_frames, 141);
  ASSERT_EQ(notes.size(), 3U);
  EXPECT_THAT(notes[0], HasSubstr("width 1343"));
  EXPECT_THAT(notes[1], HasSubstr("making 32"));
  EXPECT_THAT(notes[2], HasSubstr("making 141 instead of 125"));
}

TEST(Geometry, UntrainedSizesAreNoted) {
  std::vector<std::string> notes;
  ASSERT_TRUE(fit_geometry(2048, 1024, 379, notes));
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_THAT(notes[0], HasSubstr("379 frames"));
  EXPECT_THAT(notes[1], HasSubstr("2048×1024"));
}

TEST(Geometry, ImpossibleSizesAreRefusedWithTheNearest) {
  std::vector<std::string> notes;
  const auto message = [&](std::int64_t width, std::int64_t height, std::int64_t frames) {
    const auto fitted = fit_geometry(width, height, frames, notes);
    EXPECT_FALSE(fitted);
    return fitted ? std::string() : fitted.error().message;
  };
  EXPECT_THAT(message(0, 64, 22), HasSubstr("smallest is 32"));
  EXPECT_THAT(message(64, -5, 22), HasSubstr("height"));
  EXPECT_THAT(message(100000, 64, 22), HasSubstr("largest is 4096"));
  EXPECT_THAT(message(64, 64, 0), HasSubstr("shortest clip has 5"));
  EXPECT_THAT(message(64, 64, -1), HasSubstr("-1 frames"));
  EXPECT_THAT(message(64, 64, 100000), HasSubstr("longest has 1093"));
}

TEST(Geometry, CanvasOfAnAspectRatioMatchesTheReference) {
  const testing::Golden golden("golden/packing.safetensors");
  const auto ratios = golden.integers("geometry.aspect_ratios");
  const auto sizes = golden.integers("geometry.canvas_height_width");
  for (std::size_t i = 0; i < ratios.size(); i += 2) {
    const Canvas canvas =
        canvas_of_aspect(static_cast<double>(ratios[i]), static_cast<double>(ratios[i + 1]))
            .value();
    EXPECT_EQ(canvas.height, sizes[i]) << ratios[i] << ":" << ratios[i + 1];
    EXPECT_EQ(canvas.width, sizes[i + 1]) << ratios[i] << ":" << ratios[i + 1];
  }
}

TEST(Geometry, CanvasWorkedExamplesOfTheSpec) {
  const auto canvas = [](double w, double h) {
    const Canvas size = canvas_of_aspect(w, h).value();
    return std::pair{size.width, size.height};
  };
  EXPECT_EQ(canvas(16, 9), (std::pair<std::int64_t, std::int64_t>{1344, 768}));
  EXPECT_EQ(canvas(21, 9), (std::pair<std::int64_t, std::int64_t>{1536, 672}));
  EXPECT_EQ(canvas(2, 1), (std::pair<std::int64_t, std::int64_t>{1440, 704}));
  EXPECT_EQ(canvas(1, 4), (std::pair<std::int64_t, std::int64_t>{512, 2016}));
  EXPECT_EQ(canvas(3, 2), (std::pair<std::int64_t, std::int64_t>{1152, 768}));
}

TEST(Geometry, AbsurdAspectRatiosAreRefused) {
  for (const auto& [width, height] : {std::pair{5.0, 1.0}, std::pair{1.0, 4.1}, std::pair{0.0, 1.0},
                                      std::pair{1.0, 0.0}, std::pair{-16.0, -9.0}}) {
    EXPECT_THAT(canvas_of_aspect(width, height).error().message, HasSubstr("1:4 and 4:1"));
  }
}

TEST(Geometry, SecondsBecomeFrames) {
  EXPECT_EQ(frames_of_seconds(5.0).value(), 124);
  EXPECT_EQ(frames_of_seconds(5.1666).value(), 124);
  EXPECT_EQ(frames_of_seconds(15.0).value(), 362);
  EXPECT_EQ(frames_of_seconds(0.1).value(), 5);
  EXPECT_FALSE(frames_of_seconds(0.0));
  EXPECT_FALSE(frames_of_seconds(-1.0));
  EXPECT_FALSE(frames_of_seconds(1e9));
  EXPECT_FALSE(frames_of_seconds(std::numeric_limits<double>::quiet_NaN()));
}

}  // namespace
}  // namespace miniacc
