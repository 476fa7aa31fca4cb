#include "measure/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "io/media/video_writer.h"
#include "measure/drawn_clip.h"
#include "support/temp_dir.h"

namespace miniacc::measure {
namespace {

using nlohmann::json;
using testing::draw_clip;
using testing::DrawnScene;
using ::testing::HasSubstr;

DrawnScene star_scene() {
  DrawnScene scene;
  scene.shape = "star";
  scene.color = "purple";
  scene.motion = "bouncing";
  scene.background = "gray";
  return scene;
}

/// Writes the clip and reads it back.
Clip through_file(const Clip& clip, const std::filesystem::path& path) {
  VideoWriterOptions options;
  options.width = clip.width;
  options.height = clip.height;
  const auto writer = VideoWriter::create(path, options).value();
  EXPECT_TRUE(writer->write_frames(clip.frames));
  EXPECT_TRUE(writer->write_audio(clip.audio));
  EXPECT_TRUE(writer->finish());
  return read_clip(path).value();
}

TEST(Judge, JudgesCompressedFilesAndFramefolders) {
  const testing::TempDir folder;
  for (const DrawnScene& scene : {star_scene(), DrawnScene()}) {
    const Clip clip = draw_clip(scene);
    for (const char* name : {"x.mp4", "x.mkv", "frames/"}) {
      SCOPED_TRACE(name);
      const std::filesystem::path path = folder / (scene.shape + name);
      const Judgement judgement = judge(through_file(clip, path), testing::describe(scene)).value();
      EXPECT_EQ(judgement.prompt_agreement.value, 1.0) << judgement_text(judgement);
      EXPECT_EQ(judgement.fps_assumed, std::string(name) == "frames/");
      if (scene.motion == "bouncing") {
        EXPECT_NEAR(judgement.synchrony.median_offset_ms.value.value_or(1e9), 0.0, 10.0);
      } else {
        EXPECT_GT(judgement.synchrony.pan_correlation.value.value_or(0), 0.98);
      }
    }
  }
}

TEST(Judge, LargePicturesAreMeasuredAtAReducedSize) {
  DrawnScene scene = star_scene();
  scene.width = 832;
  scene.height = 480;
  const Judgement judgement = judge(draw_clip(scene), testing::describe(scene)).value();
  EXPECT_EQ(judgement.prompt_agreement.value, 1.0) << judgement_text(judgement);
  EXPECT_EQ(judgement.width, 832);
}

TEST(Judge, CaptionsOutsideTheGrammarLeaveEverythingUnknown) {
  const Judgement judgement =
      judge(draw_clip(star_scene()), "A cat plays the piano in the rain.").value();
  ASSERT_EQ(judgement.agreement.size(), 7U);
  for (const Agreement& item : judgement.agreement) {
    EXPECT_EQ(item.verdict, Verdict::kUnknown);
    EXPECT_EQ(item.reason, "the caption does not name it");
  }
  EXPECT_EQ(judgement.prompt_agreement.reason, "nothing is both named and measured");
  EXPECT_TRUE(judgement.color.value);  // what is seen is measured all the same
}

TEST(Judge, ASecondShapeIsSaidToBeUnmeasured) {
  DrawnScene scene;
  scene.second_shape = true;
  const Judgement judgement =
      judge(draw_clip(scene),
            testing::describe(scene) + ", a cyan square rests in the upper left corner")
          .value();
  EXPECT_EQ(judgement.agreement.back().attribute, "second shape");
  EXPECT_EQ(judgement.agreement.back().verdict, Verdict::kUnknown);
  EXPECT_EQ(judgement.prompt_agreement.value, 1.0);
}

TEST(Judge, JsonHoldsWhatTheTextSays) {
  const DrawnScene scene = star_scene();
  const Judgement judgement = judge(draw_clip(scene), testing::describe(scene)).value();
  const json document = json::parse(judgement_json(judgement));
  EXPECT_EQ(document["subject"]["color"], "purple");
  EXPECT_EQ(document["subject"]["shape"], "star");
  EXPECT_EQ(document["subject"]["motion"], "bouncing");
  EXPECT_EQ(document["subject"]["track"].size(), 39U);
  EXPECT_EQ(document["background"], "gray");
  EXPECT_EQ(document["sound"]["pitch"], "high");
  EXPECT_EQ(document["prompt_agreement"], 1.0);
  EXPECT_EQ(document["agreement"][0]["verdict"], "right");
  EXPECT_TRUE(document["subject"]["clockwise"].is_null());
  const std::string text = judgement_text(judgement);
  for (const char* part : {"purple", "star", "bouncing", "760.0 Hz, high", "gray", "beep after"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(Judge, JsonGivesTheReasonOfEveryGap) {
  Clip clip = draw_clip(DrawnScene());
  clip.audio.clear();
  clip.channels = 0;
  clip.sample_rate_hz = 0;
  const json document = json::parse(judgement_json(judge(clip, std::nullopt).value()));
  EXPECT_TRUE(document["sound"]["pitch_hz"].is_null());
  EXPECT_EQ(document["sound"]["pitch_hz_unknown"], "the clip has no sound");
  EXPECT_EQ(document["synchrony"]["pan_correlation_unknown"], "the clip has no sound");
  EXPECT_FALSE(document.contains("agreement"));
}

TEST(Judge, SoundAloneIsJudged) {
  Clip clip = draw_clip(star_scene());
  clip.frames.clear();
  clip.frame_times_s.clear();
  clip.num_frames = clip.width = clip.height = 0;
  const Judgement judgement = judge(clip, "with a high tone").value();
  EXPECT_EQ(judgement.no_subject, "the clip has no pictures");
  EXPECT_EQ(judgement.prompt_agreement.value, 1.0);
  EXPECT_FALSE(judgement_text(judgement).empty());
}

TEST(Judge, TinyPicturesAreJudgedWithoutTrouble) {
  for (const auto& [width, height] : {std::pair{1, 1}, {2, 1}, {1, 40}, {16, 2}, {500, 1}}) {
    Clip clip;
    clip.width = width;
    clip.height = height;
    clip.num_frames = 8;
    for (int i = 0; i < width * height * 3 * 8; ++i) {
      clip.frames.push_back(static_cast<std::uint8_t>(i * 37));
    }
    const auto judgement = judge(clip, "a red circle");
    ASSERT_TRUE(judgement);
    EXPECT_FALSE(judgement_json(*judgement).empty());
  }
}

TEST(Judge, SoundThatIsNoNumberIsRefused) {
  Clip clip = draw_clip(DrawnScene());
  clip.audio[100] = std::numeric_limits<float>::quiet_NaN();
  const auto judgement = judge(clip, std::nullopt);
  ASSERT_FALSE(judgement);
  EXPECT_EQ(judgement.error().code, ErrorCode::kInvalidInput);
}

}  // namespace
}  // namespace miniacc::measure
