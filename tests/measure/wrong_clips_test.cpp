// Clips with one deliberate fault each: the judge must name that fault and no other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "measure/drawn_clip.h"
#include "measure/judge.h"
#include "support/random.h"

namespace miniacc::measure {
namespace {

using testing::draw_clip;
using testing::DrawnScene;
using ::testing::HasSubstr;

const Agreement& find(const Judgement& judgement, const std::string& attribute) {
  return *std::find_if(judgement.agreement.begin(), judgement.agreement.end(),
                       [&](const Agreement& item) { return item.attribute == attribute; });
}

/// Attributes with this verdict, in order.
std::vector<std::string> with_verdict(const Judgement& judgement, Verdict verdict) {
  std::vector<std::string> names;
  for (const Agreement& item : judgement.agreement) {
    if (item.verdict == verdict) {
      names.push_back(item.attribute);
    }
  }
  return names;
}

DrawnScene bouncing_scene() {
  DrawnScene scene;
  scene.shape = "triangle";
  scene.color = "yellow";
  scene.motion = "bouncing";
  return scene;
}

TEST(WrongClips, EachWrongWordIsTheOnlyOneFound) {
  const DrawnScene drawn;
  struct Case {
    const char* attribute;
    void (*change)(DrawnScene&);
    const char* wanted;
  };
  const Case cases[] = {
      {"color", [](DrawnScene& s) { s.color = "green"; }, "green"},
      {"size", [](DrawnScene& s) { s.size = 2; }, "large"},
      {"motion", [](DrawnScene& s) { s.motion = "left"; }, "left"},
      {"speed", [](DrawnScene& s) { s.speed = 0; }, "slow"},
      {"background", [](DrawnScene& s) { s.background = "brown"; }, "brown"},
      {"background", [](DrawnScene& s) { s.background_bottom = "gray"; }, "dark blue to gray"},
  };
  const Clip clip = draw_clip(drawn);
  for (const auto& [attribute, change, wanted] : cases) {
    SCOPED_TRACE(wanted);
    DrawnScene told = drawn;
    change(told);
    const Judgement judgement = judge(clip, testing::describe(told)).value();
    EXPECT_EQ(with_verdict(judgement, Verdict::kWrong), std::vector<std::string>{attribute});
    EXPECT_EQ(find(judgement, attribute).wanted, wanted);
    EXPECT_LT(judgement.prompt_agreement.value.value_or(1), 1.0);
  }
  DrawnScene told = drawn;
  told.shape = "star";  // the generator's pitch goes with the shape
  const Judgement judgement = judge(clip, testing::describe(told)).value();
  EXPECT_EQ(with_verdict(judgement, Verdict::kWrong), (std::vector<std::string>{"shape", "pitch"}));
  EXPECT_EQ(judgement.pitch_fits_shape.value, true);
}

TEST(WrongClips, TheSpeedOfAnotherMotionIsNotCompared) {
  DrawnScene told;
  told.motion = "spinning";
  told.speed = 2;
  const Judgement judgement = judge(draw_clip(DrawnScene()), testing::describe(told)).value();
  EXPECT_EQ(find(judgement, "motion").verdict, Verdict::kWrong);
  EXPECT_EQ(find(judgement, "speed").verdict, Verdict::kUnknown);
}

TEST(WrongClips, SwappedChannelsTurnThePanRound) {
  DrawnScene scene;
  const Judgement good = judge(draw_clip(scene), std::nullopt).value();
  EXPECT_GT(good.synchrony.pan_correlation.value.value_or(0), 0.99);
  scene.swap_channels = true;
  const Judgement swapped = judge(draw_clip(scene), std::nullopt).value();
  EXPECT_LT(swapped.synchrony.pan_correlation.value.value_or(0), -0.99);
  EXPECT_GT(swapped.synchrony.pan_error.value.value_or(0), 0.08);
}

TEST(WrongClips, LateAndEarlyBeepsAreMeasured) {
  for (const double delay_s : {0.12, -0.12, 0.05}) {
    DrawnScene scene = bouncing_scene();
    scene.beep_delay_s = delay_s;
    const Judgement judgement = judge(draw_clip(scene), std::nullopt).value();
    EXPECT_NEAR(judgement.synchrony.median_offset_ms.value.value_or(0), 1000 * delay_s, 8.0);
    EXPECT_EQ(judgement.synchrony.silent_bounces, 0U);
  }
}

TEST(WrongClips, ABounceWithoutSoundIsNamed) {
  DrawnScene scene = bouncing_scene();
  scene.silent = true;
  const Judgement judgement = judge(draw_clip(scene), testing::describe(scene)).value();
  EXPECT_EQ(judgement.motion.motion.value, Motion::kBouncing);
  EXPECT_EQ(judgement.synchrony.silent_bounces, judgement.motion.bounces_s.size());
  EXPECT_EQ(judgement.synchrony.median_offset_ms.reason, "no bounce has a beep");
  EXPECT_EQ(judgement.synchrony.pan_correlation.reason, "silence");
  EXPECT_EQ(find(judgement, "pitch").verdict, Verdict::kUnknown);
  EXPECT_EQ(find(judgement, "pitch").reason, "the clip is silent");
  EXPECT_EQ(find(judgement, "color").verdict, Verdict::kRight);
}

TEST(WrongClips, BeepsOverAStillPictureAreNotPaired) {
  Clip clip = draw_clip(bouncing_scene());
  DrawnScene still = bouncing_scene();
  still.motion = "still";
  clip.frames = draw_clip(still).frames;
  const Judgement judgement = judge(clip, testing::describe(bouncing_scene())).value();
  EXPECT_EQ(judgement.motion.motion.value, Motion::kStill);
  EXPECT_EQ(find(judgement, "motion").verdict, Verdict::kWrong);
  EXPECT_FALSE(judgement.beeps_s.empty());
  EXPECT_EQ(judgement.synchrony.median_offset_ms.reason, "no bounce is seen");
}

TEST(WrongClips, AStillPictureIsStill) {
  for (const char* shape : {"circle", "square", "triangle", "star", "cross"}) {
    DrawnScene scene;
    scene.shape = shape;
    scene.motion = "still";
    scene.picture_noise = 2.0;
    const Judgement judgement = judge(draw_clip(scene), "a red circle spins quickly").value();
    EXPECT_EQ(judgement.motion.motion.value, Motion::kStill) << shape;
    EXPECT_FALSE(judgement.motion.speed.value);
  }
}

Clip noise_clip(int smoothing) {
  Clip clip = draw_clip(DrawnScene());
  const auto noise = testing::random_normal(static_cast<std::int64_t>(clip.frames.size()), 11);
  for (std::int64_t frame = 0; frame < clip.num_frames; ++frame) {
    for (int y = 0; y < clip.height; ++y) {
      for (int x = 0; x < clip.width; ++x) {
        for (int i = 0; i < 3; ++i) {
          const auto at = [&](int row, int column) {
            return static_cast<std::size_t>(
                ((frame * clip.height + row) * clip.width + column) * 3 + i);
          };
          clip.frames[at(y, x)] = static_cast<std::uint8_t>(std::clamp(
              128.0F + 60.0F * noise[at(y / smoothing * smoothing, x / smoothing * smoothing)],
              0.0F, 255.0F));
        }
      }
    }
  }
  for (std::size_t i = 0; i < clip.audio.size(); ++i) {
    clip.audio[i] = 0.1F * noise[i];
  }
  return clip;
}

TEST(WrongClips, NoiseHasNoSubject) {
  for (const int smoothing : {1, 8, 32}) {
    const Judgement judgement =
        judge(noise_clip(smoothing), testing::describe(DrawnScene())).value();
    EXPECT_NE(judgement.no_subject, "") << smoothing;
    EXPECT_EQ(with_verdict(judgement, Verdict::kRight), std::vector<std::string>());
    EXPECT_EQ(with_verdict(judgement, Verdict::kWrong), std::vector<std::string>());
    EXPECT_FALSE(judgement.prompt_agreement.value);
    EXPECT_FALSE(judgement.pitch_hz.value);
    EXPECT_LT(judgement.quality.background_stability.value.value_or(1), 0.1);
    EXPECT_THAT(judgement_text(judgement), HasSubstr("no subject found"));
  }
}

TEST(WrongClips, BlackAndEmptyBackgroundsHaveNoSubject) {
  Clip clip = draw_clip(DrawnScene());
  std::fill(clip.frames.begin(), clip.frames.end(), std::uint8_t{0});
  const Judgement judgement = judge(clip, "a red circle").value();
  EXPECT_EQ(judgement.no_subject, "nothing stands out from the background");
  EXPECT_EQ(find(judgement, "shape").reason,
            "no subject found: nothing stands out from the background");
  EXPECT_EQ(judgement.quality.background_stability.value, 1.0);
  EXPECT_EQ(judgement.quality.sharpness.value, 0.0);
}

TEST(WrongClips, PiecesThatJumpAboutAreNoSubject) {
  // A good shape, but each frame from another moment of a wide path.
  DrawnScene scene;
  scene.motion = "circling";
  scene.speed = 2;
  const Clip good = draw_clip(scene);
  Clip clip = good;
  const auto size = static_cast<std::int64_t>(good.frames.size()) / good.num_frames;
  for (std::int64_t frame = 0; frame < clip.num_frames; ++frame) {
    const std::int64_t source = frame * 23 % clip.num_frames;
    std::copy_n(good.frames.begin() + source * size, size, clip.frames.begin() + frame * size);
  }
  EXPECT_EQ(judge(clip, std::nullopt)->no_subject,
            "what stands out jumps about from frame to frame");
}

TEST(WrongClips, OneFrameShowsThingsButNoMotion) {
  DrawnScene scene;
  scene.num_frames = 1;
  const Judgement judgement = judge(draw_clip(scene), testing::describe(scene)).value();
  EXPECT_EQ(find(judgement, "color").verdict, Verdict::kRight);
  EXPECT_EQ(find(judgement, "shape").verdict, Verdict::kRight);
  EXPECT_EQ(find(judgement, "motion").verdict, Verdict::kUnknown);
  EXPECT_EQ(find(judgement, "motion").reason, "the subject is seen in 1 frames, a motion needs 6");
  EXPECT_FALSE(judgement.quality.background_stability.value);
  EXPECT_FALSE(judgement.quality.subject_stability.value);
}

TEST(WrongClips, FlickerAndFadingLowerTheStabilities) {
  Clip clip = draw_clip(DrawnScene());
  const auto size = clip.frames.size() / static_cast<std::size_t>(clip.num_frames);
  for (std::size_t i = 0; i < clip.frames.size(); ++i) {
    const int lift = (i / size) % 2 == 0 ? 0 : 12;
    clip.frames[i] = static_cast<std::uint8_t>(std::min(255, clip.frames[i] + lift));
  }
  const Judgement judgement = judge(clip, std::nullopt).value();
  EXPECT_NEAR(judgement.quality.background_change.value.value_or(0), 6.0, 0.2);
  EXPECT_LT(judgement.quality.background_stability.value.value_or(1), 0.8);
  EXPECT_LT(judgement.quality.subject_stability.value.value_or(1),
            judge(draw_clip(DrawnScene()), std::nullopt)
                .value()
                .quality.subject_stability.value.value_or(0));
}

TEST(WrongClips, ABlurredPictureIsLessSharp) {
  const Clip clip = draw_clip(DrawnScene());
  Clip blurred = clip;
  for (std::size_t i = 6; i + 6 < clip.frames.size(); ++i) {
    blurred.frames[i] =
        static_cast<std::uint8_t>((clip.frames[i - 6] + clip.frames[i - 3] + clip.frames[i] +
                                   clip.frames[i + 3] + clip.frames[i + 6]) /
                                  5);
  }
  EXPECT_LT(judge(blurred, std::nullopt)->quality.sharpness.value.value_or(1e9),
            0.6 * judge(clip, std::nullopt)->quality.sharpness.value.value_or(0));
}

TEST(WrongClips, ColoursWithoutANameAreUnknown) {
  Clip clip = draw_clip(DrawnScene());
  for (std::size_t i = 0; i < clip.frames.size(); i += 3) {
    if (clip.frames[i] > 120) {  // the red subject becomes pink
      clip.frames[i] = 255;
      clip.frames[i + 1] = 120;
      clip.frames[i + 2] = 190;
    }
  }
  const Judgement judgement = judge(clip, "a red circle").value();
  EXPECT_EQ(find(judgement, "color").verdict, Verdict::kUnknown);
  EXPECT_THAT(judgement.color.reason, HasSubstr("has no name"));
  EXPECT_EQ(find(judgement, "shape").verdict, Verdict::kRight);
}

}  // namespace
}  // namespace miniacc::measure
