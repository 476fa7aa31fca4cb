#include "io/media/reference_clip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string>

#include "io/error_matchers.h"
#include "io/file_util.h"
#include "io/media/clip_fixture.h"
#include "io/media/frame_clock.h"
#include "io/media/input_probe.h"
#include "io/media/media_bytes.h"
#include "io/media/resize.h"

namespace miniacc {
namespace {

using ::testing::Contains;
using testing::expect_error;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::run_ffmpeg;
using testing::TempDir;
using testing::wav_bytes;
using testing::write_old_file;

constexpr int kWidth = 64;
constexpr int kHeight = 32;
constexpr int kBits = 8;

/// Raw frames that carry their number: bit b is the grey of the b-th of eight upright bars; the
/// lower half is the inverse, so that turned frames are told apart.
std::string numbered_frames(int count) {
  std::string raw;
  for (int frame = 0; frame < count; ++frame) {
    for (int y = 0; y < kHeight; ++y) {
      for (int x = 0; x < kWidth; ++x) {
        const bool bit = (frame >> (x * kBits / kWidth) & 1) != 0;
        raw.append(3, bit == (y < kHeight / 2) ? '\xC8' : '\x28');
      }
    }
  }
  return raw;
}

/// The number that a decoded frame carries; -1 if it is not one of ours.
int number_of(const RgbClip& clip, std::int64_t index) {
  int number = 0;
  for (int bit = 0; bit < kBits; ++bit) {
    const auto pixel = [&](int y) {
      const std::int64_t x = bit * kWidth / kBits + kWidth / kBits / 2;
      return clip
          .pixels[static_cast<std::size_t>(((index * clip.height + y) * clip.width + x) * 3 + 1)];
    };
    const bool upper = pixel(kHeight / 4) > 120;
    const bool lower = pixel(3 * kHeight / 4) > 120;
    if (upper == lower) {
      return -1;
    }
    number |= static_cast<int>(upper) << bit;
  }
  return number;
}

std::vector<int> numbers_of(const RgbClip& clip) {
  std::vector<int> numbers;
  for (std::int64_t i = 0; i < clip.num_frames; ++i) {
    numbers.push_back(number_of(clip, i));
  }
  return numbers;
}

/// The reference's rule for a constant rate (diffusers, before_encoder.py), in its own words: frame
/// i is repeated slot(i + 1) - slot(i) times.
std::vector<int> held(int count, double fps) {
  std::vector<int> numbers;
  for (int i = 0; i < count; ++i) {
    const double scale = 24.0 / fps;
    const auto from = static_cast<int>(std::floor(i * scale + 0.5));
    const auto to = static_cast<int>(std::floor((i + 1) * scale + 0.5));
    numbers.insert(numbers.end(), static_cast<std::size_t>(to - from), i);
  }
  return numbers;
}

class ReferenceClipReader : public ::testing::Test {
 protected:
  /// `count` numbered frames at a rate ("30000/1001") through ffmpeg with further options.
  std::filesystem::path numbered(const std::string& name, int count, const std::string& rate,
                                 const std::string& options) {
    write_old_file(folder_ / "raw.rgb", numbered_frames(count));
    const std::filesystem::path path = folder_ / name;
    EXPECT_TRUE(run_ffmpeg("-f rawvideo -pix_fmt rgb24 -s 64x32 -framerate " + rate + " -i " +
                           (folder_ / "raw.rgb").string() + " " + options + " " + path.string()))
        << name;
    return path;
  }
  /// The demand on every clip: what the probe says is what the reader gives.
  static void expect_probe_agrees(const std::filesystem::path& path, const ReferenceClip& clip) {
    const auto info = probe_clip(path);
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_EQ(info->num_frames, clip.frames.num_frames) << path;
    EXPECT_EQ(info->has_sound, clip.sound.has_value()) << path;
  }
  static constexpr const char* kH264 = "-c:v libx264 -preset ultrafast -qp 10 -pix_fmt yuv444p";
  TempDir folder_;
};

// I04: a frame counter at many rates, in containers whose clocks tick in 1/90000 s and in 1 ms.
TEST_F(ReferenceClipReader, SourceFramesEqualTheReferencesRule) {
  struct Rate {
    const char* text;
    double fps;
  };
  const Rate rates[] = {{"12", 12.0}, {"24000/1001", 24000.0 / 1001.0}, {"24", 24.0}, {"25", 25.0},
                        {"16", 16.0}, {"30000/1001", 30000.0 / 1001.0}, {"48", 48.0}, {"50", 50.0},
                        {"60", 60.0}, {"60000/1001", 60000.0 / 1001.0}};
  for (const Rate& rate : rates) {
    for (const char* name : {"n.mp4", "n.mkv", "n.mov"}) {
      const auto path = numbered(name, 120, rate.text, kH264);
      const auto clip = read_reference_clip(path);
      ASSERT_TRUE(clip) << clip.error().message;
      EXPECT_EQ(numbers_of(clip->frames), held(120, rate.fps)) << name << " at " << rate.text;
      expect_probe_agrees(path, *clip);
      std::filesystem::remove(path);
    }
  }
}

TEST_F(ReferenceClipReader, VariableRateGoesByTimestamps) {
  // Frames last 1, 3, 2 and 5 units of 1/48 s in turn.
  const auto path = numbered("v.mp4", 16, "48",
                             std::string("-vf \"setpts='floor(N/4)*11+eq(mod(N,4),1)*1+"
                                         "eq(mod(N,4),2)*4+eq(mod(N,4),3)*6'\" -vsync passthrough "
                                         "-enc_time_base 1/48 ") +
                                 kH264);
  const int starts[] = {0, 1, 4, 6};
  std::vector<int> wanted;
  const auto slot = [&](int frame) {
    return static_cast<std::size_t>(
        std::floor((frame / 4 * 11 + starts[frame % 4]) * 24.0 / 48.0 + 0.5));
  };
  for (int frame = 0; frame < 15; ++frame) {
    wanted.resize(slot(frame + 1), frame);
  }
  const auto clip = read_reference_clip(path);
  ASSERT_TRUE(clip) << clip.error().message;
  std::vector<int> numbers = numbers_of(clip->frames);
  ASSERT_GE(numbers.size(), wanted.size());
  numbers.resize(wanted.size());  // how long the last frame lasts is the muxer's choice
  EXPECT_EQ(numbers, wanted);
  expect_probe_agrees(path, *clip);
}

TEST_F(ReferenceClipReader, EditListsMoveTheStart) {
  const auto path = numbered("whole.mp4", 48, "24", std::string(kH264) + " -g 12");
  // Cut without coding anew: the edit list hides what lies between key frame and start.
  const auto cut = folder_ / "cut.mp4";
  ASSERT_TRUE(run_ffmpeg("-ss 0.75 -i " + path.string() + " -c copy " + cut.string()));
  const auto clip = read_reference_clip(cut);
  ASSERT_TRUE(clip) << clip.error().message;
  EXPECT_EQ(number_of(clip->frames, 0), 18);
  EXPECT_EQ(clip->frames.num_frames, 30);
  expect_probe_agrees(cut, *clip);
}

TEST_F(ReferenceClipReader, OnlyTheFirstFramesAreDecoded) {
  const auto path = numbered("n.mkv", 100, "24", std::string(kH264) + " -bf 0");
  const auto clip = read_reference_clip(path, {.max_frames = 39});
  ASSERT_TRUE(clip) << clip.error().message;
  EXPECT_EQ(numbers_of(clip->frames), held(39, 24.0));
  EXPECT_THAT(clip->notes, Contains(HasSubstr("is longer than 39 frames at 24 fps")));
  const auto exact =
      read_reference_clip(numbered("e.mkv", 39, "24", "-c:v ffv1"), {.max_frames = 39});
  ASSERT_TRUE(exact);
  EXPECT_EQ(exact->frames.num_frames, 39);
}

// I09: 10^5 frames, of which the first are taken.
TEST_F(ReferenceClipReader, HundredThousandFramesAreCut) {
  const auto path = folder_ / "long.mkv";
  ASSERT_TRUE(
      run_ffmpeg("-f lavfi -i color=black:s=16x16:r=1000 -frames:v 100000 -c:v libx264 "
                 "-preset ultrafast -threads 1 " +
                 path.string()));
  const auto clip = read_reference_clip(path, {.max_frames = 22});
  ASSERT_TRUE(clip) << clip.error().message;
  EXPECT_EQ(clip->frames.num_frames, 22);
  EXPECT_NEAR(static_cast<double>(probe_clip(path)->num_frames), 2400.0, 1.0);
}

TEST_F(ReferenceClipReader, LimitsNameBothNumbers) {
  const auto path = numbered("n.mkv", 48, "24", "-c:v ffv1");
  expect_error(read_reference_clip(path, {.max_pixels = 2000}),
               "has 64x32 pixels, at most 2000 in all are accepted");
  expect_error(read_reference_clip(path, {.max_bytes = 64 * 32 * 3 * 10}),
               "at most 61440 are accepted");
  expect_error(read_reference_clip(path, {.max_frames = 0}), "clip: wants",
               ErrorCode::kInvalidArgument);
}

// I07: the display matrix; what is right is what the ffmpeg program shows.
TEST_F(ReferenceClipReader, RotationIsApplied) {
  const auto plain = numbered("plain.mov", 4, "24", kH264);
  for (const char* degrees : {"90", "180", "270"}) {
    const auto turned = folder_ / "turned.mov";
    ASSERT_TRUE(run_ffmpeg("-i " + plain.string() + " -c copy -metadata:s:v rotate=" + degrees +
                           " " + turned.string()));
    ASSERT_TRUE(run_ffmpeg("-i " + turned.string() + " -c:v ffv1 -pix_fmt bgr0 " +
                           (folder_ / "shown.mkv").string()));
    const auto clip = read_reference_clip(turned);
    const auto shown = read_reference_clip(folder_ / "shown.mkv");
    ASSERT_TRUE(clip && shown);
    ASSERT_EQ(clip->frames.width, shown->frames.width) << degrees;
    int worst = 0;
    for (std::size_t i = 0; i < clip->frames.pixels.size(); ++i) {
      worst = std::max(worst, std::abs(clip->frames.pixels[i] - shown->frames.pixels[i]));
    }
    EXPECT_LE(worst, 3) << degrees;
    EXPECT_THAT(clip->notes, Contains(HasSubstr("as it says")));
    const auto info = probe_clip(turned);
    ASSERT_TRUE(info);
    EXPECT_EQ(info->width, clip->frames.width);
    EXPECT_EQ(info->height, clip->frames.height);
  }
}

TEST_F(ReferenceClipReader, FramesComeAtTheWantedSize) {
  const auto path = numbered("n.mkv", 3, "24", "-c:v ffv1");
  ReferenceClipOptions options;
  PictureSize asked;
  options.target_size = [&](PictureSize size) -> Result<PictureSize> {
    asked = size;
    return PictureSize{96, 64};
  };
  const auto small = read_reference_clip(path, options);
  const auto stored = read_reference_clip(path);
  ASSERT_TRUE(small && stored);
  EXPECT_EQ(asked.width, 64);
  EXPECT_EQ(asked.height, 32);
  const auto frame = [](const RgbClip& clip, std::int64_t index) {
    const std::int64_t bytes = clip.width * clip.height * 3;
    return RgbImage{
        clip.width,
        clip.height,
        {clip.pixels.begin() + index * bytes, clip.pixels.begin() + (index + 1) * bytes}};
  };
  EXPECT_EQ(frame(small->frames, 2).pixels,
            resize(frame(stored->frames, 2), 96, 64, ResizeFilter::kLanczos).pixels);
  // Wide pixels: the size that is shown is asked about.
  const auto wide = numbered("w.mkv", 2, "24", "-c:v ffv1 -vf setsar=2/1");
  const auto shown = read_reference_clip(wide, options);
  ASSERT_TRUE(shown);
  EXPECT_EQ(asked.width, 128);
  EXPECT_THAT(shown->notes, Contains(HasSubstr("has pixels of 2:1, it is shown as 128x32")));
  options.target_size = [](PictureSize) -> Result<PictureSize> {
    return fail(ErrorCode::kInvalidInput, "is too wide");
  };
  expect_error(read_reference_clip(path, options), "n.mkv: is too wide");
}

// O02 on input: bars in every range and matrix that files are tagged with.
TEST_F(ReferenceClipReader, RangeAndMatrixAreTheFilesOwn) {
  const int width = 12 * 8;
  const std::vector<std::uint8_t> rgb = testing::bars(width, 16);
  write_old_file(folder_ / "bars.rgb", std::string(rgb.begin(), rgb.end()));
  const std::string input =
      "-f rawvideo -pix_fmt rgb24 -s 96x16 -framerate 24 -i " + (folder_ / "bars.rgb").string();
  struct Tag {
    const char* matrix;  ///< of the scale filter
    const char* name;    ///< of the encoder's tag
  };
  for (const Tag& tag :
       {Tag{"bt709", "bt709"}, {"smpte170m", "smpte170m"}, {"bt2020", "bt2020nc"}}) {
    for (const char* range : {"tv", "pc"}) {
      const auto path = folder_ / "bars.mp4";
      ASSERT_TRUE(run_ffmpeg(input + " -vf scale=out_color_matrix=" + tag.matrix +
                             ":out_range=" + range + ":flags=accurate_rnd+full_chroma_int,format=" +
                             "yuv444p -c:v libx264 -qp 0 -colorspace " + tag.name +
                             " -color_range " + range + " " + path.string()));
      const auto clip = read_reference_clip(path);
      ASSERT_TRUE(clip) << clip.error().message;
      int worst = 0;
      for (std::size_t i = 0; i < rgb.size(); ++i) {
        worst = std::max(worst, std::abs(clip->frames.pixels[i] - rgb[i]));
      }
      EXPECT_LE(worst, 2) << tag.name << " " << range;
      EXPECT_THAT(clip->notes, Not(Contains(HasSubstr("does not state"))));
    }
  }
}

// I04: sound cut by the same clock. A click at 0.5 s in the picture's time stays there.
TEST_F(ReferenceClipReader, SoundFollowsThePicturesClock) {
  std::vector<float> samples(2 * 48000, 0.0F);
  for (std::size_t i = 24000; i < 24048; ++i) {
    samples[2 * i] = 0.9F;
    samples[2 * i + 1] = -0.9F;
  }
  write_old_file(folder_ / "click.wav", wav_bytes(samples, 2, 48000));
  const std::string sound = " -i " + (folder_ / "click.wav").string() + " -map 0 -map 1 ";
  const auto picture = numbered("p.mkv", 24, "24", "-c:v ffv1");
  struct Case {
    const char* name;
    const char* options;
    const char* offset;  ///< of the sound in the container
    int click;           ///< first loud sample of the result
  };
  const Case cases[] = {
      {"a.mkv", "-c:v copy -c:a flac", "", 16000},
      {"a.mp4", "-c:v libx264 -c:a aac -b:a 256k", "", 16000},
      {"a.mov", "-c:v libx264 -c:a pcm_s16le", "", 16000},
      {"a.webm", "-c:v libvpx-vp9 -deadline realtime -c:a libopus -b:a 256k", "", 16000},
      {"aac.mkv", "-c:v copy -c:a aac -b:a 256k", "", 16000},
      {"late.mkv", "-c:v copy -c:a flac", "-itsoffset 0.25", 24000},
      {"early.mkv", "-c:v copy -c:a flac", "-itsoffset -0.25", 8000},
      {"late.mp4", "-c:v libx264 -c:a aac -b:a 256k", "-itsoffset 0.25", 24000}};
  for (const Case& item : cases) {
    const auto path = folder_ / item.name;
    ASSERT_TRUE(run_ffmpeg("-i " + picture.string() + " " + item.offset + sound + item.options +
                           " -avoid_negative_ts make_zero " + path.string()))
        << item.name;
    const auto clip = read_reference_clip(path);
    ASSERT_TRUE(clip) << clip.error().message;
    ASSERT_TRUE(clip->sound) << item.name;
    EXPECT_EQ(clip->sound->sample_rate_hz, 32000);
    const std::vector<float>& out = clip->sound->samples;
    const auto loud = std::find_if(out.begin(), out.begin() + clip->sound->num_samples,
                                   [](float v) { return v > 0.4F; });
    // 1 ms: the tick of Matroska's clock.
    EXPECT_NEAR(static_cast<double>(loud - out.begin()), item.click, 34.0) << item.name;
    const auto at = static_cast<std::size_t>(loud - out.begin() + 10);
    EXPECT_LT(out[static_cast<std::size_t>(clip->sound->num_samples) + at], -0.4F) << item.name;
    expect_probe_agrees(path, *clip);
    const auto short_clip = read_reference_clip(path, {.max_frames = 6});
    ASSERT_TRUE(short_clip);
    EXPECT_EQ(short_clip->sound->num_samples, 8000) << item.name;
    const auto mute = read_reference_clip(path, {.with_sound = false});
    ASSERT_TRUE(mute);
    EXPECT_FALSE(mute->sound);
  }
}

TEST_F(ReferenceClipReader, FoldersAreReadInNaturalOrder) {
  const auto frames = folder_ / "frames";
  std::filesystem::create_directories(frames / "nested.png");
  for (int i = 0; i < 12; ++i) {
    write_old_file(frames / ("shot_" + std::to_string(i) + ".png"),
                   testing::png_bytes(4, 2, {static_cast<std::uint8_t>(i), 0, 0}));
  }
  write_old_file(frames / ".hidden.png", "x");
  write_old_file(frames / "notes.txt", "x");
  const auto clip = read_reference_clip(frames);
  ASSERT_TRUE(clip) << clip.error().message;
  ASSERT_EQ(clip->frames.num_frames, 12);
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(clip->frames.pixels[i * 24], i);
  }
  EXPECT_FALSE(clip->sound);
  expect_probe_agrees(frames, *clip);
  const auto slow = read_reference_clip(frames, {.folder_fps = 16.0});
  ASSERT_TRUE(slow);
  const std::vector<int> wanted = held(12, 16.0);
  ASSERT_EQ(slow->frames.num_frames, static_cast<std::int64_t>(wanted.size()));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(slow->frames.pixels[i * 24], wanted[i]);
  }
  EXPECT_EQ(probe_clip(frames, 16.0)->num_frames, slow->frames.num_frames);
  write_old_file(frames / "audio.wav", wav_bytes(std::vector<float>(3200, 0.5F), 1, 32000));
  const auto sounding = read_reference_clip(frames);
  ASSERT_TRUE(sounding && sounding->sound);
  EXPECT_EQ(sounding->sound->num_samples, 3200);
  write_old_file(frames / "shot_007.png", testing::png_bytes(4, 2, {0, 0, 0}));
  expect_error(read_reference_clip(frames), "have the same number");
  std::filesystem::remove(frames / "shot_007.png");
  write_old_file(frames / "shot_5.png", testing::png_bytes(5, 2, {0, 0, 0}));
  expect_error(read_reference_clip(frames), "shot_5.png: is 5x2, the first frame is 4x2");
  std::filesystem::create_directory(folder_ / "empty");
  expect_error(read_reference_clip(folder_ / "empty"), "holds no pictures");
}

TEST_F(ReferenceClipReader, WhatIsNoClipIsNamed) {
  write_old_file(folder_ / "s.wav", wav_bytes(std::vector<float>(320, 0.5F), 1, 32000));
  ASSERT_TRUE(run_ffmpeg("-i " + (folder_ / "s.wav").string() + " -c:a aac " +
                         (folder_ / "sound.mp4").string()));
  expect_error(read_reference_clip(folder_ / "sound.mp4"),
               "sound.mp4: has no video, only sound, wanted a clip");
  expect_error(probe_clip(folder_ / "sound.mp4"), "has no video, only sound");
  expect_error(read_reference_clip(folder_ / "s.wav"), "s.wav: is a WAV sound");
  write_old_file(folder_ / "p.mp4", testing::png_bytes(4, 4, {1, 2, 3}));
  expect_error(read_reference_clip(folder_ / "p.mp4"), "p.mp4: is a PNG picture, wanted a clip");
  write_old_file(folder_ / "l.mp4", "ffconcat version 1.0\nfile sound.mp4\n");
  expect_error(read_reference_clip(folder_ / "l.mp4"), "is a playlist");
  write_old_file(folder_ / "e.mp4", "");
  expect_error(read_reference_clip(folder_ / "e.mp4"), "is empty (0 bytes)");
  expect_error(read_reference_clip(folder_ / "none.mp4"), "no such file", ErrorCode::kNotFound);
  for (const char* name : {"http://127.0.0.1/a.mp4", "concat:a.mp4|b.mp4", "pipe:0"}) {
    expect_error(read_reference_clip(name), "no such file", ErrorCode::kNotFound);
  }
}

TEST_F(ReferenceClipReader, TruncationIsAnError) {
  for (const char* name : {"t.mp4", "t.mkv", "t.webm", "t.avi"}) {
    const std::string codec = std::string(name) == "t.webm" ? "-c:v libvpx-vp9 -deadline realtime"
                                                            : "-c:v libx264 -pix_fmt yuv420p";
    const auto path = numbered(name, 24, "24", codec + " -movflags +faststart");
    const std::string whole = testing::read_file(path);
    for (const double share : {0.02, 0.3, 0.9}) {
      write_old_file(
          path,
          whole.substr(0, static_cast<std::size_t>(share * static_cast<double>(whole.size()))));
      EXPECT_FALSE(read_reference_clip(path)) << name << " " << share;
      EXPECT_FALSE(probe_clip(path)) << name << " " << share;
    }
  }
}

TEST_F(ReferenceClipReader, DamageIsAnError) {
  for (const char* name : {"d.mkv", "d.mp4"}) {
    const auto path = numbered(name, 100, "24", std::string(kH264) + " -bf 0");
    std::string bytes = testing::read_file(path);
    for (std::size_t i = bytes.size() * 5 / 10; i < bytes.size() * 6 / 10; ++i) {
      bytes[i] = static_cast<char>(~bytes[i]);
    }
    write_old_file(path, bytes);
    const auto clip = read_reference_clip(path);
    ASSERT_FALSE(clip) << name;
    EXPECT_THAT(clip.error().message, HasSubstr(std::string(name) + ": is damaged"));
  }
}

TEST(FrameClock, HalvesGoUpAndMillisecondsAreSnapped) {
  const libav::FrameClock fine({1, 90000}, {48, 1});
  const libav::FrameClock coarse({1, 1000}, {48, 1});
  for (std::int64_t i = 0; i < 1000; ++i) {
    const auto wanted = static_cast<std::int64_t>(std::floor(static_cast<double>(i) * 0.5 + 0.5));
    EXPECT_EQ(fine.slot(i, i * 1875), wanted);
    EXPECT_EQ(coarse.slot(i, std::llround(static_cast<double>(i) * 1000.0 / 48.0)), wanted);
    EXPECT_EQ(libav::constant_rate_slot(i, 48.0), wanted);
  }
  // Far from the constant rate the timestamps count.
  EXPECT_EQ(coarse.slot(1, 500), 12);
  EXPECT_EQ(coarse.slot(5, -7), 0);
  const libav::FrameClock rateless({1, 1000}, {0, 1});
  EXPECT_EQ(rateless.slot(9, 1021), 25);
  EXPECT_EQ(rateless.slot(9, 1020), 24);
}

}  // namespace
}  // namespace miniacc
