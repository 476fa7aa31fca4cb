#include "runtime/conditions.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/request.h"

namespace miniacc {
namespace {

using Kind = ReferenceInput::Kind;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Files that exist only as descriptions: a name says what a header would.
Result<SourceInfo> described(const Condition& condition) {
  SourceInfo source;
  if (condition.role == ConditionRole::kAudio) {
    source.num_samples = 64000;
    return source;
  }
  source.width = 320;
  source.height = 240;
  source.num_frames = condition.role == ConditionRole::kVideo ? 48 : 1;
  source.num_samples = condition.file.path == "mute.mp4" ? 0 : 64000;
  return source;
}

GenerateRequest small_request() {
  GenerateRequest request;
  request.prompt = "a fox";
  request.width = 64;
  request.height = 64;
  request.num_frames = 22;
  request.ref_image_size = "match";
  request.output = "clip.mp4";
  return request;
}

PrepareOptions described_options() {
  PrepareOptions options;
  options.rules.canvas = {.short_edge = 64, .max_pixels = 64 * 128};
  options.probe = described;
  return options;
}

void add(GenerateRequest& request, int count, Kind kind, const std::string& path,
         bool with_sound = false) {
  for (int i = 0; i < count; ++i) {
    request.references.push_back({kind, {path, {}}, with_sound});
  }
}

/// How many files of each kind a request has.
struct Mix {
  bool first = false;
  bool last = false;
  int images = 0;
  int silent_videos = 0;
  int sounding_videos = 0;
  int sounds = 0;

  [[nodiscard]] int references() const { return images + silent_videos + sounding_videos + sounds; }
  [[nodiscard]] std::string name() const {
    return fmt::format("first {} last {} images {} videos {} with sound {} sounds {}", first, last,
                       images, silent_videos, sounding_videos, sounds);
  }
};

/// What the rules of docs/inputs.md say: a part of the refusal, or nothing.
std::vector<std::string> expected_refusals(const Mix& mix) {
  std::vector<std::string> refusals;
  if (mix.images > 9) {
    refusals.emplace_back("10 reference images");
  }
  if (mix.silent_videos + mix.sounding_videos > 3) {
    refusals.emplace_back("reference videos");
  }
  if (mix.sounds > 3) {
    refusals.emplace_back("reference sounds");
  }
  if (mix.references() > 12) {
    refusals.emplace_back("at most 12");
  }
  if (mix.sounds > 0 && mix.sounds == mix.references()) {
    refusals.emplace_back("cannot be used alone");
  }
  if ((mix.first || mix.last) && mix.references() > 0) {
    refusals.emplace_back("cannot be used together");
  }
  return refusals;
}

void expect_layout(const Mix& mix, const PreparedRequest& prepared) {
  const std::vector<Modality> tags(5, Modality::kText);
  const PackedSequence sequence =
      pack_request(prepared.task, prepared.conditions, tags, prepared.geometry);
  const int keyframes = static_cast<int>(mix.first) + static_cast<int>(mix.last);
  // Text, a segment for each picture and each sound, the clip's two.
  EXPECT_EQ(sequence.segments.size(),
            static_cast<std::size_t>(1 + keyframes + mix.images + mix.silent_videos +
                                     2 * mix.sounding_videos + mix.sounds + 2));
  std::int64_t rows = 5 + 2 * 37 + 7 * 4;           // text, clip: 7 latent frames of 2 x 2 patches
  rows += keyframes * 4;                            // one frame of the clip's size
  rows += std::int64_t{mix.images} * 2 * 2;         // 320x240 at the clip's area: 64 x 64
  rows += std::int64_t{mix.silent_videos} * 7 * 6;  // 22 frames at 96 x 64: 7 latents of 3 x 2
  // 22 frames of sound are 29,333 samples, 37 latents a side.
  rows += std::int64_t{mix.sounding_videos} * (7 * 6 + 2 * 37);
  rows += std::int64_t{mix.sounds} * 2 * 37;
  EXPECT_EQ(sequence.num_rows(), rows);
  EXPECT_EQ(prepared.task, keyframes > 0          ? Task::kFl2va
                           : mix.references() > 0 ? Task::kRef2va
                                                  : Task::kT2va);
}

class EveryMix : public ::testing::TestWithParam<int> {};

// Issue 5, bad input: every combination is a layout or a named error at submit.
TEST_P(EveryMix, IsALayoutOrANamedError) {
  Mix mix;
  mix.first = (GetParam() & 1) != 0;
  mix.last = (GetParam() & 2) != 0;
  for (mix.images = 0; mix.images <= 10; ++mix.images) {
    for (mix.silent_videos = 0; mix.silent_videos <= 3; ++mix.silent_videos) {
      for (mix.sounding_videos = 0; mix.sounding_videos <= 4; ++mix.sounding_videos) {
        for (mix.sounds = 0; mix.sounds <= 4; ++mix.sounds) {
          SCOPED_TRACE(mix.name());
          GenerateRequest request = small_request();
          request.init_image.path = mix.first ? "first.png" : "";
          request.end_image.path = mix.last ? "last.png" : "";
          add(request, mix.sounds, Kind::kAudio, "voice.wav");
          add(request, mix.images, Kind::kImage, "fox.png");
          add(request, mix.sounding_videos, Kind::kVideo, "dance.mp4", true);
          add(request, mix.silent_videos, Kind::kVideo, "mute.mp4");
          const auto prepared = prepare_request(request, described_options());
          const std::vector<std::string> refusals = expected_refusals(mix);
          if (refusals.empty()) {
            ASSERT_TRUE(prepared) << prepared.error().message;
            expect_layout(mix, *prepared);
          } else {
            ASSERT_FALSE(prepared);
            EXPECT_EQ(prepared.error().code, ErrorCode::kInvalidArgument);
            const std::string& message = prepared.error().message;
            EXPECT_TRUE(std::any_of(refusals.begin(), refusals.end(), [&](const std::string& part) {
              return message.find(part) != std::string::npos;
            })) << message;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Conditions, EveryMix, ::testing::Range(0, 4));

TEST(Conditions, OrderIsThatOfTheRequest) {
  GenerateRequest request = small_request();
  add(request, 1, Kind::kAudio, "voice.wav");
  add(request, 1, Kind::kVideo, "dance.mp4", true);
  add(request, 1, Kind::kImage, "fox.png");
  add(request, 1, Kind::kAudio, "rain.wav");
  const PreparedRequest prepared = prepare_request(request, described_options()).value();
  ASSERT_EQ(prepared.conditions.size(), 4U);
  EXPECT_EQ(prepared.conditions[0].role, ConditionRole::kAudio);
  EXPECT_EQ(prepared.conditions[1].role, ConditionRole::kVideo);
  EXPECT_EQ(prepared.conditions[2].role, ConditionRole::kImage);
  EXPECT_EQ(prepared.conditions[3].file.path, "rain.wav");
}

Condition fitted(ConditionRole role, const SourceInfo& source,
                 const std::string& size = "diffusers", std::int64_t clip_width = 1344,
                 std::int64_t clip_height = 768) {
  Condition condition;
  condition.role = role;
  condition.with_sound = role == ConditionRole::kVideo && source.num_samples > 0;
  GenerateRequest request;
  request.ref_image_size = size;
  std::vector<std::string> notes;
  const ClipGeometry clip = fit_geometry(clip_width, clip_height, 124, notes).value();
  const Status status = fit_condition(condition, source, request, clip, {}, notes);
  EXPECT_TRUE(status) << status.error().message;
  return condition;
}

// Spec text_encoder.md §10.4.
TEST(Conditions, ReferenceImagesHaveAShortEdgeOf2048) {
  const auto size = [](std::int64_t width, std::int64_t height, const char* mode = "diffusers") {
    const Condition condition =
        fitted(ConditionRole::kImage, {.width = width, .height = height, .num_frames = 1}, mode);
    return std::pair{condition.width, condition.height};
  };
  using Size = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(size(1920, 1080), Size(3648, 2048));
  EXPECT_EQ(size(1024, 1024), Size(2048, 2048));
  EXPECT_EQ(size(640, 480), Size(2720, 2048));
  EXPECT_EQ(size(800, 3200), Size(2048, 8192));
  // "max" never enlarges, "match" holds the clip's 1344 x 768 pixels.
  EXPECT_EQ(size(640, 480, "max"), Size(640, 480));
  EXPECT_EQ(size(5000, 4000, "max"), Size(2560, 2048));
  EXPECT_EQ(size(640, 480, "match"), Size(640, 480));
  EXPECT_EQ(size(4000, 3000, "match"), Size(1184, 864));
  EXPECT_EQ(size(10, 20, "match"), Size(32, 32));
}

TEST(Conditions, VideosAreCutToTheClipAndToWholeChunks) {
  const auto video = [](std::int64_t num_frames, std::int64_t num_samples = 0) {
    return fitted(
        ConditionRole::kVideo,
        {.width = 1920, .height = 1080, .num_frames = num_frames, .num_samples = num_samples});
  };
  EXPECT_EQ(video(300).width, 1344);
  EXPECT_EQ(video(300).height, 768);
  EXPECT_EQ(video(300).num_frames, 124);
  EXPECT_EQ(video(300).latents().num_frames, 37);
  EXPECT_EQ(video(123).num_encoded_frames(), 107);
  EXPECT_EQ(video(123).latents().num_frames, 32);
  EXPECT_EQ(video(38).num_encoded_frames(), 22);
  EXPECT_EQ(video(22).latents().num_frames, 7);
  // Shorter ones are filled up to whole chunks of 17.
  EXPECT_EQ(video(21).num_encoded_frames(), 21);
  EXPECT_EQ(video(21).latents().num_frames, 7);
  EXPECT_EQ(video(17).latents().num_frames, 2);
  EXPECT_EQ(video(13).latents().num_frames, 2);
  // 124 frames are 165,333 samples; the end is padded to whole latents (demands.md W24).
  EXPECT_EQ(video(300, 1'000'000).num_samples, 165333);
  EXPECT_EQ(video(300, 1'000'000).num_audio_latents(), 207);
  EXPECT_EQ(video(300, 801).num_audio_latents(), 2);
}

std::string refusal(ConditionRole role, const SourceInfo& source, bool with_sound = false) {
  Condition condition;
  condition.role = role;
  condition.with_sound = with_sound;
  condition.name = "it";
  std::vector<std::string> notes;
  const ClipGeometry clip = fit_geometry(64, 64, 124, notes).value();
  const Status status = fit_condition(condition, source, {}, clip, {}, notes);
  return status ? "" : status.error().message;
}

TEST(Conditions, SourcesThatNobodyCanUseAreRefused) {
  EXPECT_THAT(refusal(ConditionRole::kImage, {.width = 1, .height = 640, .num_frames = 1}),
              HasSubstr("1x640; its aspect ratio must lie between 1:4 and 4:1"));
  EXPECT_THAT(refusal(ConditionRole::kVideo, {.width = 640, .height = 1, .num_frames = 100}),
              HasSubstr("aspect ratio"));
  EXPECT_THAT(refusal(ConditionRole::kVideo, {.width = 64, .height = 64, .num_frames = 12}),
              HasSubstr("12 frames at 24 a second; a reference video needs at least 13"));
  EXPECT_EQ(refusal(ConditionRole::kVideo, {.width = 64, .height = 64, .num_frames = 13}), "");
  EXPECT_THAT(refusal(ConditionRole::kVideo, {.width = 64, .height = 64, .num_frames = 48}, true),
              HasSubstr("has no sound; give it with --ref-video"));
  EXPECT_THAT(refusal(ConditionRole::kAudio, {}), HasSubstr("no sound"));
  EXPECT_EQ(refusal(ConditionRole::kAudio, {.num_samples = 6400}), "");  // 200 ms
}

TEST(Conditions, TheClipTakesTheShapeOfItsFirstKeyframe) {
  GenerateRequest request = small_request();
  request.width = request.height = 0;
  const auto size = [&](std::optional<SourceInfo> source) {
    const auto canvas = clip_size(request, source, {});
    return canvas ? fmt::format("{}x{}", canvas->width, canvas->height) : canvas.error().message;
  };
  EXPECT_EQ(size(std::nullopt), "1344x768");
  EXPECT_EQ(size(SourceInfo{.width = 1000, .height = 1500, .num_frames = 1}), "768x1152");
  EXPECT_EQ(size(SourceInfo{.width = 64, .height = 64, .num_frames = 1}), "768x768");
  EXPECT_THAT(size(SourceInfo{.width = 1, .height = 640, .num_frames = 1}),
              HasSubstr("first keyframe is 1x640"));
  request.width = 640;
  EXPECT_EQ(size(std::nullopt), "640x768");
  EXPECT_THAT(size(SourceInfo{.width = 64, .height = 64, .num_frames = 1}),
              HasSubstr("both --width and --height"));
  request.height = 480;
  EXPECT_EQ(size(SourceInfo{.width = 1, .height = 640, .num_frames = 1}), "640x480");
}

TEST(Conditions, WhatIsChangedIsSaid) {
  GenerateRequest request = small_request();
  request.init_image.path = "first.png";
  request.width = 128;
  EXPECT_THAT(prepare_request(request, described_options()).value().notes,
              ::testing::Contains(HasSubstr("320x240 and is stretched to 128x64")));
  request.keyframe_fit = "cover";
  EXPECT_THAT(prepare_request(request, described_options()).value().notes,
              ::testing::Not(::testing::Contains(HasSubstr("stretched"))));
  request = small_request();
  add(request, 1, Kind::kVideo, "dance.mp4");
  const auto notes = prepare_request(request, described_options()).value().notes;
  EXPECT_THAT(notes, ::testing::Contains(HasSubstr("cut from 48 to the 22 frames")));
  EXPECT_THAT(notes, ::testing::Contains(HasSubstr("--ref-video-audio takes it too")));
}

TEST(Conditions, OptionsOutOfRangeAreRefused) {
  GenerateRequest request = small_request();
  request.ref_image_size = "huge";
  EXPECT_THAT(check_inputs(request).error().message, HasSubstr("--ref-image-size"));
  request = small_request();
  request.keyframe_fit = "squeeze";
  EXPECT_THAT(check_inputs(request).error().message, HasSubstr("--fit"));
  request = small_request();
  add(request, 1, Kind::kImage, "");
  EXPECT_THAT(check_inputs(request).error().message, HasSubstr("names no file"));
  request = small_request();
  add(request, 1, Kind::kImage, "fox.png", true);
  EXPECT_THAT(check_inputs(request).error().message, HasSubstr("only a video"));
  request = small_request();
  request.model.half = "both";
  EXPECT_THAT(prepare_request(request).error().message, HasSubstr("--model-half"));
}

TEST(Conditions, ResumedLatentsNeedNoFiles) {
  GenerateRequest request = small_request();
  request.init_image.path = "/nowhere/first.png";
  EXPECT_FALSE(prepare_request(request));
  request.resume_latents = "clip.latents.safetensors";
  EXPECT_THAT(prepare_request(request).value().conditions, IsEmpty());
}

}  // namespace
}  // namespace miniacc
