#include "io/media/sound_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>

#include "io/error_matchers.h"
#include "io/file_util.h"
#include "io/media/clip_fixture.h"
#include "io/media/input_probe.h"
#include "io/media/media_bytes.h"

namespace miniacc {
namespace {

using ::testing::Contains;
using testing::expect_error;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::run_ffmpeg;
using testing::TempDir;
using testing::wav_bytes;
using testing::write_old_file;

double tone(double hertz, double seconds) {
  return 0.5 * std::sin(2.0 * std::numbers::pi * hertz * seconds);
}

/// 1 s: 440 Hz left, 1000 Hz right (mono: left only), from sample 0 on.
std::string tones_wav(int channels, int rate, double seconds = 1.0) {
  std::vector<float> samples;
  for (int i = 0; i < static_cast<int>(seconds * rate); ++i) {
    for (int channel = 0; channel < channels; ++channel) {
      samples.push_back(
          static_cast<float>(tone(channel == 1 ? 1000.0 : 440.0, static_cast<double>(i) / rate)));
    }
  }
  return wav_bytes(samples, channels, rate);
}

/// Largest difference of a channel to its tone between two samples, delayed by `delay` samples.
double worst_difference(const StereoSound& sound, int channel, double hertz, std::int64_t begin,
                        std::int64_t end, double delay = 0.0) {
  double worst = 0.0;
  for (std::int64_t i = begin; i < end; ++i) {
    const double wanted =
        tone(hertz, (static_cast<double>(i) - delay) / static_cast<double>(sound.sample_rate_hz));
    const auto at = static_cast<std::size_t>(channel * sound.num_samples + i);
    worst = std::max(worst, std::abs(sound.samples[at] - wanted));
  }
  return worst;
}

class SoundReader : public ::testing::Test {
 protected:
  std::filesystem::path wav(int channels, int rate, double seconds = 1.0) {
    write_old_file(folder_ / "in.wav", tones_wav(channels, rate, seconds));
    return folder_ / "in.wav";
  }
  TempDir folder_;
};

// I02, I03: any rate keeps its pitch, mono goes to both sides; W21: sides stay apart.
TEST_F(SoundReader, AnyRateBecomes32kHz) {
  for (const int rate : {8000, 11025, 22050, 24000, 32000, 44100, 48000, 96000, 192000}) {
    for (const int channels : {1, 2}) {
      const auto clip = read_sound(wav(channels, rate));
      ASSERT_TRUE(clip) << clip.error().message;
      const StereoSound& sound = clip->sound;
      EXPECT_EQ(sound.sample_rate_hz, 32000);
      EXPECT_EQ(sound.num_samples, 32000) << rate;
      ASSERT_EQ(sound.samples.size(), 64000U);
      const double right = channels == 1 ? 440.0 : 1000.0;
      // Behind the filter's ends the tone itself; measured 2e-7 (soxr's passband at 8 kHz: 3e-6).
      EXPECT_LT(worst_difference(sound, 0, 440.0, 1000, 31000), 1e-5) << rate;
      EXPECT_LT(worst_difference(sound, 1, right, 1000, 31000), 1e-5) << rate;
      EXPECT_EQ(clip->notes.empty(), rate == 32000);
    }
  }
}

TEST_F(SoundReader, OtherRatesMayBeAskedFor) {
  const auto clip = read_sound(wav(2, 44100), {.sample_rate_hz = 16000});
  ASSERT_TRUE(clip);
  EXPECT_EQ(clip->sound.num_samples, 16000);
  EXPECT_LT(worst_difference(clip->sound, 1, 1000.0, 500, 15500), 1e-5);
  // 1001 samples at 44100 Hz are 726.35 at 32000 Hz: rounded up.
  write_old_file(folder_ / "odd.wav", wav_bytes(std::vector<float>(1001, 0.25F), 1, 44100));
  EXPECT_EQ(read_sound(folder_ / "odd.wav")->sound.num_samples, 727);
}

// W24: the first sample is the first sample, in every container and codec.
TEST_F(SoundReader, FirstMillisecondsAreKept) {
  const std::filesystem::path source = wav(2, 48000);
  const std::string input = "-i " + source.string() + " ";
  struct Case {
    const char* name;
    const char* options;
    double bound;  ///< of the difference to the tone, what the codec itself loses
  };
  const Case cases[] = {
      {"a.wav", "-c:a pcm_s16le", 1e-3},
      {"a24.wav", "-c:a pcm_s24le", 1e-4},
      {"a.flac", "-c:a flac", 1e-3},
      {"a.m4a", "-c:a aac -b:a 256k", 0.05},
      {"a.mov", "-c:a aac -b:a 256k", 0.05},
      {"a.mp3", "-c:a libmp3lame -b:a 320k", 0.05},
      {"a.ogg", "-c:a libvorbis -q:a 9", 0.05},
      {"a.opus", "-c:a libopus -b:a 256k", 0.08},
      {"a.webm", "-c:a libopus -b:a 256k", 0.08},
      {"a.mkv", "-c:a flac", 1e-3},
  };
  for (const Case& item : cases) {
    const std::filesystem::path path = folder_ / item.name;
    ASSERT_TRUE(run_ffmpeg(input + item.options + " " + path.string())) << item.name;
    const auto clip = read_sound(path);
    ASSERT_TRUE(clip) << clip.error().message;
    EXPECT_NEAR(static_cast<double>(clip->sound.num_samples), 32000.0, 32.0) << item.name;
    // The phase is that of the source: a shift by one sample would change 1000 Hz by 0.1. FFmpeg's
    // AAC encoder needs half a second to settle.
    EXPECT_LT(worst_difference(clip->sound, 0, 440.0, 16000, 31000), item.bound) << item.name;
    EXPECT_LT(worst_difference(clip->sound, 1, 1000.0, 16000, 31000), item.bound) << item.name;
    // The very first samples are there: the tone begins at once.
    double early = 0.0;
    for (std::size_t i = 0; i < 64; ++i) {
      early = std::max(early, std::abs(static_cast<double>(clip->sound.samples[i])));
    }
    EXPECT_GT(early, 0.15) << item.name;
    const auto info = probe_sound(path);
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_EQ(info->channels, 2);
    EXPECT_EQ(info->sample_rate_hz, 48000);
    EXPECT_NEAR(info->seconds, 1.0, 0.06) << item.name;
  }
}

TEST_F(SoundReader, SurroundIsMixedDown) {
  // One channel of 5.1 (FL FR FC LFE BL BR) at a time: what of it reaches left and right.
  constexpr double kHalfPower = 0.70710678;
  constexpr double kScale = 1.0 / (1.0 + 2.0 * kHalfPower);
  const double wanted[6][2] = {{kScale, 0.0},
                               {0.0, kScale},
                               {kScale * kHalfPower, kScale * kHalfPower},
                               {0.0, 0.0},
                               {kScale * kHalfPower, 0.0},
                               {0.0, kScale * kHalfPower}};
  for (std::size_t channel = 0; channel < 6; ++channel) {
    std::vector<float> samples(6 * 400, 0.0F);
    for (std::size_t i = 0; i < 400; ++i) {
      samples[6 * i + channel] = 0.5F;
    }
    write_old_file(folder_ / "5.1.wav", wav_bytes(samples, 6, 32000));
    const auto clip = read_sound(folder_ / "5.1.wav");
    ASSERT_TRUE(clip) << clip.error().message;
    ASSERT_EQ(clip->sound.num_samples, 400);
    EXPECT_NEAR(clip->sound.samples[100], 0.5 * wanted[channel][0], 1e-6) << channel;
    EXPECT_NEAR(clip->sound.samples[500], 0.5 * wanted[channel][1], 1e-6) << channel;
    EXPECT_THAT(clip->notes, Contains(HasSubstr("6 channels (5.1) are mixed down")));
  }
}

TEST_F(SoundReader, ShortAndSilentSoundsAreRead) {
  const auto brief = read_sound(wav(1, 48000, 0.2));
  ASSERT_TRUE(brief);
  EXPECT_EQ(brief->sound.num_samples, 6400);
  write_old_file(folder_ / "one.wav", wav_bytes({0.5F}, 1, 32000));
  const auto single = read_sound(folder_ / "one.wav");
  ASSERT_TRUE(single);
  EXPECT_EQ(single->sound.samples, (std::vector<float>{0.5F, 0.5F}));
  write_old_file(folder_ / "silent.wav", wav_bytes(std::vector<float>(3200, 0.0F), 1, 32000));
  const auto silent = read_sound(folder_ / "silent.wav");
  ASSERT_TRUE(silent);
  EXPECT_EQ(silent->sound.num_samples, 3200);
  EXPECT_THAT(silent->notes, Contains("its sound is silent"));
  write_old_file(folder_ / "none.wav", wav_bytes({}, 1, 32000));
  EXPECT_FALSE(read_sound(folder_ / "none.wav"));
}

TEST_F(SoundReader, OnlyTheBeginningIsDecoded) {
  const auto cut = read_sound(wav(2, 48000), {.max_seconds = 0.5});
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->sound.num_samples, 16000);
  EXPECT_THAT(cut->notes, Contains("is longer than 0.500 s; the rest is not used"));
  const auto whole = read_sound(wav(2, 32000), {.max_seconds = 1.0});
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->sound.num_samples, 32000);
  EXPECT_THAT(whole->notes, IsEmpty());
}

// I09: ten hours of silence in a few kilobytes.
TEST_F(SoundReader, TenHoursOfSilenceAreCut) {
  const std::filesystem::path path = folder_ / "long.flac";
  ASSERT_TRUE(run_ffmpeg("-f lavfi -i anullsrc=r=1000:cl=mono -t 36000 -frame_size 16384 " +
                         path.string()));
  EXPECT_LT(std::filesystem::file_size(path), 200'000U);
  const auto clip = read_sound(path);
  ASSERT_TRUE(clip) << clip.error().message;
  EXPECT_EQ(clip->sound.num_samples, 482656);  // 15083 samples at 1000 Hz
  EXPECT_THAT(clip->notes, Contains(HasSubstr("is longer than 15.083 s")));
  EXPECT_NEAR(probe_sound(path)->seconds, 36000.0, 0.1);
}

TEST_F(SoundReader, SamplesMustBeNumbers) {
  std::vector<float> samples(100, 0.1F);
  samples[42] = std::numeric_limits<float>::quiet_NaN();
  write_old_file(folder_ / "nan.wav", wav_bytes(samples, 1, 32000));
  expect_error(read_sound(folder_ / "nan.wav"), "nan.wav: sample 42 of channel 0 is nan");
  samples[42] = 0.0F;
  samples[60] = -std::numeric_limits<float>::infinity();
  write_old_file(folder_ / "inf.wav", wav_bytes(samples, 2, 32000));
  expect_error(read_sound(folder_ / "inf.wav"), "inf.wav: sample 30 of channel 0 is -inf");
}

TEST_F(SoundReader, WhatIsNoSoundIsNamed) {
  ASSERT_TRUE(testing::is_ok(testing::write_clip(folder_ / "film.mp4",
                                                 [] {
                                                   auto options = testing::small_options();
                                                   options.audio_sample_rate_hz = 0;
                                                   return options;
                                                 }(),
                                                 testing::busy_frames(96, 64, 3), {})));
  expect_error(read_sound(folder_ / "film.mp4"), "film.mp4: has no sound, wanted a sound");
  write_old_file(folder_ / "p.wav", testing::png_bytes(4, 4, {1, 2, 3}));
  expect_error(read_sound(folder_ / "p.wav"), "p.wav: is a PNG picture, wanted a sound");
  write_old_file(folder_ / "t.mp3", "just some text");
  expect_error(read_sound(folder_ / "t.mp3"), "in no format that is known here");
  write_old_file(folder_ / "l.mp3", "#EXTM3U\nin.wav\n");
  expect_error(read_sound(folder_ / "l.mp3"), "is a playlist");
  write_old_file(folder_ / "e.wav", "");
  expect_error(read_sound(folder_ / "e.wav"), "is empty (0 bytes)");
  expect_error(read_sound(folder_ / "none.wav"), "no such file", ErrorCode::kNotFound);
  expect_error(read_sound(folder_.path()), "is a folder, wanted a sound");
  for (const SoundOptions& options :
       {SoundOptions{.max_seconds = 0.0}, SoundOptions{.max_seconds = std::nan("")},
        SoundOptions{.max_seconds = 1e9}, SoundOptions{.sample_rate_hz = 0}}) {
    expect_error(read_sound(wav(1, 32000), options), "sound: wants", ErrorCode::kInvalidArgument);
  }
}

TEST_F(SoundReader, TruncationIsAnError) {
  const std::filesystem::path source = wav(2, 48000);
  for (const char* name : {"c.wav", "c.flac", "c.m4a", "c.mka", "c.mp3"}) {
    const std::filesystem::path path = folder_ / name;
    ASSERT_TRUE(run_ffmpeg("-i " + source.string() + " " + path.string())) << name;
    const std::string whole = testing::read_file(path);
    for (const double share : {0.1, 0.5, 0.7}) {
      write_old_file(
          path,
          whole.substr(0, static_cast<std::size_t>(share * static_cast<double>(whole.size()))));
      const auto clip = read_sound(path);
      ASSERT_FALSE(clip) << name << " cut to " << share;
      EXPECT_THAT(clip.error().message, HasSubstr(name));
    }
  }
}

TEST_F(SoundReader, CoverPicturesDoNotHurt) {
  const std::filesystem::path source = wav(2, 44100);
  write_old_file(folder_ / "cover.png", testing::png_bytes(16, 16, {1, 2, 3}));
  const std::filesystem::path path = folder_ / "song.mp3";
  ASSERT_TRUE(run_ffmpeg("-i " + source.string() + " -i " + (folder_ / "cover.png").string() +
                         " -map 0 -map 1 -c:v copy -disposition:v attached_pic " + path.string()));
  const auto clip = read_sound(path);
  ASSERT_TRUE(clip) << clip.error().message;
  EXPECT_EQ(clip->sound.num_samples, 32000);
}

}  // namespace
}  // namespace miniacc
