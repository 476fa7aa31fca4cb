#include "runtime/condition_media.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "io/media/picture_writer.h"
#include "runtime/condition_files.h"
#include "runtime/request.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;
using Kind = ReferenceInput::Kind;
using ::testing::Contains;
using testing::formula_picture;
using ::testing::HasSubstr;
using testing::write_formula_picture;
using testing::write_formula_sound;
using testing::write_formula_video;

/// A white disc on black: as wide as high where it is not distorted.
RgbImage disc(std::int64_t width, std::int64_t height) {
  RgbImage image{width, height, {}};
  const double radius = 0.4 * static_cast<double>(std::min(width, height));
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      const double dx = static_cast<double>(2 * x + 1 - width) / 2.0;
      const double dy = static_cast<double>(2 * y + 1 - height) / 2.0;
      image.pixels.insert(image.pixels.end(), 3, std::hypot(dx, dy) <= radius ? 255 : 0);
    }
  }
  return image;
}

/// Columns and rows that are bright somewhere.
std::pair<std::int64_t, std::int64_t> bright_extent(const RgbImage& image) {
  std::int64_t columns = 0;
  std::int64_t rows = 0;
  const auto is_bright = [&](std::int64_t x, std::int64_t y) {
    return image.pixels[static_cast<std::size_t>(3 * (y * image.width + x))] > 127;
  };
  for (std::int64_t x = 0; x < image.width; ++x) {
    bool any = false;
    for (std::int64_t y = 0; y < image.height; ++y) {
      any = any || is_bright(x, y);
    }
    columns += any ? 1 : 0;
  }
  for (std::int64_t y = 0; y < image.height; ++y) {
    bool any = false;
    for (std::int64_t x = 0; x < image.width; ++x) {
      any = any || is_bright(x, y);
    }
    rows += any ? 1 : 0;
  }
  return {columns, rows};
}

class ConditionMediaTest : public ::testing::Test {
 protected:
  GenerateRequest request() const {
    GenerateRequest request;
    request.width = 96;
    request.height = 64;
    request.num_frames = 22;
    request.ref_image_size = "match";
    request.output = "unused.mp4";
    return request;
  }
  static PrepareOptions options() {
    PrepareOptions options;
    options.rules.canvas = {.short_edge = 64, .max_pixels = 64 * 96};
    return options;
  }
  Result<ConditionMedia> read_first(PreparedRequest& prepared) {
    return read_condition(prepared.conditions.front(), prepared.request, prepared.geometry,
                          prepared.rules, notes_);
  }
  ConditionMedia read(const GenerateRequest& request) {
    PreparedRequest prepared = prepare_request(request, options()).value();
    ConditionMedia media = read_first(prepared).value();
    condition_ = prepared.conditions.front();
    return media;
  }

  testing::TempDir folder_;
  std::vector<std::string> notes_;
  Condition condition_;
};

// demands.md I05: five ratios; the disc stays round under cover and contain, stretch distorts it as
// the size does.
TEST_F(ConditionMediaTest, KeyframesAreFittedAsAskedFor) {
  for (const auto& [width, height] :
       {std::pair{240, 240}, {320, 180}, {180, 320}, {400, 100}, {100, 400}}) {
    SCOPED_TRACE(fmt::format("{}x{}", width, height));
    const fs::path path = folder_ / fmt::format("{}x{}.png", width, height);
    ASSERT_TRUE(write_picture(disc(width, height), path, ExistingOutput::kReplace));
    for (const std::string fit : {"reference", "stretch", "cover", "contain"}) {
      SCOPED_TRACE(fit);
      GenerateRequest keyframe = request();
      keyframe.init_image.path = path;
      keyframe.keyframe_fit = fit;
      const RgbClip frames = read(keyframe).frames;
      ASSERT_EQ(frames.width, 96);
      ASSERT_EQ(frames.height, 64);
      ASSERT_EQ(frames.pixels.size(), 96U * 64U * 3U);
      keyframe.picture_background = {0, 0, 0};
      const RgbClip dark = read(keyframe).frames;
      const auto [columns, rows] = bright_extent({dark.width, dark.height, dark.pixels});
      const double scale_x = 96.0 / width;
      const double scale_y = 64.0 / height;
      const double diameter = 0.8 * std::min(width, height);
      const bool stretched = fit == "reference" || fit == "stretch";
      const double scale = fit == "cover" ? std::max(scale_x, scale_y) : std::min(scale_x, scale_y);
      const double wanted_columns = std::min(96.0, diameter * (stretched ? scale_x : scale));
      const double wanted_rows = std::min(64.0, diameter * (stretched ? scale_y : scale));
      EXPECT_NEAR(static_cast<double>(columns), wanted_columns, 2.0);
      EXPECT_NEAR(static_cast<double>(rows), wanted_rows, 2.0);
    }
  }
}

TEST_F(ConditionMediaTest, TheSecondKeyframeCoversAsTheReferenceDoes) {
  GenerateRequest both = request();
  both.init_image.path = write_formula_picture(folder_ / "a.png", 96, 64, 1);
  const fs::path round = folder_ / "round.png";
  ASSERT_TRUE(write_picture(disc(240, 240), round, ExistingOutput::kReplace));
  both.end_image.path = round;
  PreparedRequest prepared = prepare_request(both, options()).value();
  const ConditionMedia last =
      read_condition(prepared.conditions[1], both, prepared.geometry, prepared.rules, notes_)
          .value();
  const auto [columns, rows] =
      bright_extent({last.frames.width, last.frames.height, last.frames.pixels});
  EXPECT_NEAR(static_cast<double>(columns), 0.8 * 96, 2.0);  // scaled by 96 / 240
  EXPECT_EQ(rows, 64);
  // A picture of the right size is not touched.
  const ConditionMedia first =
      read_condition(prepared.conditions[0], both, prepared.geometry, prepared.rules, notes_)
          .value();
  EXPECT_EQ(first.frames.pixels, formula_picture(96, 64, 1).pixels);
}

TEST_F(ConditionMediaTest, ContainFillsWithTheBackground) {
  GenerateRequest keyframe = request();
  keyframe.init_image.path = write_formula_picture(folder_ / "a.png", 64, 64, 1);
  keyframe.keyframe_fit = "contain";
  keyframe.picture_background = {10, 20, 30};
  const RgbClip frames = read(keyframe).frames;
  EXPECT_EQ(frames.pixels[0], 10);
  EXPECT_EQ(frames.pixels[1], 20);
  EXPECT_EQ(frames.pixels[2], 30);
  // The picture itself in the middle, unscaled: 64 of 96 columns.
  EXPECT_EQ(frames.pixels[3 * 16], formula_picture(64, 64, 1).pixels[0]);
}

TEST_F(ConditionMediaTest, VideosKeepFramesForTheTextEncoder) {
  GenerateRequest video = request();
  video.num_frames = 39;
  video.references = {
      {Kind::kVideo, {write_formula_video(folder_ / "v", 80, 64, 30, 4, 50000), {}}, true}};
  const ConditionMedia media = read(video);
  EXPECT_EQ(media.frames.num_frames, 30);
  EXPECT_EQ(condition_.num_encoded_frames(), 22);
  EXPECT_EQ(media.frames.width, 64);  // 80 / 32 is rounded to even
  EXPECT_EQ(media.frames.height, 64);
  ASSERT_TRUE(media.sound);
  EXPECT_EQ(media.sound->num_samples, condition_.num_samples);
  EXPECT_EQ(condition_.num_samples, 50000);
}

TEST_F(ConditionMediaTest, SoundIsCutToTheClipAndKeepsItsSides) {
  GenerateRequest sound = request();
  sound.references = {
      {Kind::kAudio, {write_formula_sound(folder_ / "a.wav", 60000, 5), {}}, false},
      {Kind::kImage, {write_formula_picture(folder_ / "a.png", 64, 64, 1), {}}, false}};
  const ConditionMedia media = read(sound);
  ASSERT_TRUE(media.sound);
  EXPECT_EQ(media.sound->num_samples, 29333);  // 22 frames
  for (const std::int64_t t : {0, 1, 29332}) {
    EXPECT_EQ(media.sound->samples[static_cast<std::size_t>(t)],
              static_cast<float>(t * 42 % 2001 - 1000) / 2048.0F);
    EXPECT_EQ(media.sound->samples[static_cast<std::size_t>(29333 + t)],
              static_cast<float>(t * 53 % 2001 - 1000) / 2048.0F);
  }
}

TEST_F(ConditionMediaTest, SilenceIsSaid) {
  fs::create_directories(folder_ / "v");
  write_formula_sound(folder_ / "quiet.wav", 8000, 0);
  std::fstream file(folder_ / "quiet.wav", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(44);
  file << std::string(32000, '\0');
  file.close();
  GenerateRequest sound = request();
  sound.references = {
      {Kind::kAudio, {folder_ / "quiet.wav", {}}, false},
      {Kind::kImage, {write_formula_picture(folder_ / "a.png", 64, 64, 1), {}}, false}};
  EXPECT_TRUE(read(sound).sound);
  EXPECT_THAT(notes_, Contains(HasSubstr("is silence")));
}

// Issue 5, bad input: files that change between the check and their use.
TEST_F(ConditionMediaTest, ChangedFilesAreRefused) {
  GenerateRequest keyframe = request();
  keyframe.init_image.path = write_formula_picture(folder_ / "a.png", 96, 64, 1);
  PreparedRequest prepared = prepare_request(keyframe, options()).value();
  write_formula_picture(folder_ / "a.png", 96, 64, 2);
  EXPECT_THAT(read_first(prepared).error().message,
              HasSubstr("was changed while the job was being prepared"));
  // What was read says so in the request; another file then is an error, the same one is not.
  prepared = prepare_request(keyframe, options()).value();
  ASSERT_TRUE(read_first(prepared));
  keyframe.init_image.sha256 = prepared.conditions.front().file.sha256;
  EXPECT_EQ(keyframe.init_image.sha256, content_sha256(folder_ / "a.png").value());
  prepared = prepare_request(keyframe, options()).value();
  EXPECT_TRUE(read_first(prepared));
  write_formula_picture(folder_ / "a.png", 96, 64, 3);
  prepared = prepare_request(keyframe, options()).value();
  EXPECT_THAT(read_first(prepared).error().message,
              HasSubstr("is not the file that the request was made with"));
}

TEST_F(ConditionMediaTest, FoldersHaveAHashOfNamesAndBytes) {
  const fs::path video = write_formula_video(folder_ / "v", 32, 32, 3, 1, 100);
  const std::string hash = content_sha256(video).value();
  EXPECT_EQ(hash.size(), 64U);
  EXPECT_EQ(content_sha256(video).value(), hash);
  fs::rename(video / "frame_00002.png", video / "frame_00003.png");
  EXPECT_NE(content_sha256(video).value(), hash);
  const std::string stamp = file_stamp(video).value();
  std::ofstream(video / "audio.wav", std::ios::app) << "x";
  EXPECT_NE(file_stamp(video).value(), stamp);
  EXPECT_EQ(file_stamp(folder_ / "missing").error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(content_sha256(folder_ / "missing"));
}

TEST_F(ConditionMediaTest, DamagedAndWrongFilesAreNamed) {
  std::ofstream(folder_ / "empty.png");
  std::ofstream(folder_ / "text.png") << "not a picture at all, only words";
  const fs::path whole = write_formula_picture(folder_ / "whole.png", 96, 64, 1);
  std::ofstream(folder_ / "cut.png", std::ios::binary) << [&] {
    std::ifstream in(whole, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), {});
    return bytes.substr(0, bytes.size() / 2);
  }();
  const fs::path sound = write_formula_sound(folder_ / "sound.wav", 8000, 1);
  const auto message = [&](Kind kind, const fs::path& path) {
    GenerateRequest wrong = request();
    wrong.references = {{kind, {path, {}}, false}};
    if (kind == Kind::kAudio) {
      wrong.references.push_back({Kind::kImage, {whole, {}}, false});
    }
    auto prepared = prepare_request(wrong, options());
    if (!prepared) {
      return prepared.error().message;
    }
    const auto media = read_first(*prepared);
    EXPECT_FALSE(media) << path;
    return media ? std::string() : media.error().message;
  };
  for (const char* name : {"empty.png", "text.png", "cut.png", "missing.png"}) {
    EXPECT_THAT(message(Kind::kImage, folder_ / name), HasSubstr(name));
  }
  EXPECT_THAT(message(Kind::kVideo, sound), HasSubstr("sound.wav"));  // no video stream
  EXPECT_THAT(message(Kind::kAudio, whole), HasSubstr("whole.png"));  // no sound
  EXPECT_THAT(message(Kind::kImage, sound), HasSubstr("sound.wav"));
}

}  // namespace
}  // namespace miniacc
