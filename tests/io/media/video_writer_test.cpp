#include "io/media/video_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "io/file_util.h"
#include "io/media/clip_fixture.h"

namespace miniacc {
namespace {

using testing::bars;
using testing::busy_frames;
using testing::entries_in;
using ::testing::HasSubstr;
using testing::is_ok;
using testing::small_options;
using testing::TempDir;
using testing::tones;
using testing::write_clip;

std::uint32_t big_endian(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value = value << 8U | static_cast<unsigned char>(bytes.at(at + i));
  }
  return value;
}

/// Types of the top-level boxes of an MP4, in file order.
std::vector<std::string> top_level_boxes(const std::string& bytes) {
  std::vector<std::string> types;
  for (std::size_t at = 0; at + 8 <= bytes.size();) {
    const std::uint32_t size = big_endian(bytes, at);
    types.push_back(bytes.substr(at + 4, 4));
    if (size < 8) {
      break;
    }
    at += size;
  }
  return types;
}

std::vector<std::uint8_t> many_bars(int width, int height, int count) {
  std::vector<std::uint8_t> frames;
  for (int i = 0; i < count; ++i) {
    const auto frame = bars(width, height, i / 8);
    frames.insert(frames.end(), frame.begin(), frame.end());
  }
  return frames;
}

TEST(VideoWriter, Mp4HasTheStreamsThatPlayersWant) {
  const TempDir folder;
  const auto path = folder / "clip.mp4";
  ASSERT_TRUE(
      is_ok(write_clip(path, small_options(), many_bars(96, 64, 22), fit_audio(tones(40000), 22))));
  const auto info = probe(path);
  ASSERT_TRUE(info) << info.error().message;
  ASSERT_EQ(info->streams.size(), 2U);
  const StreamInfo& video = info->streams[0];
  EXPECT_EQ(video.codec, "h264");
  EXPECT_EQ(video.codec_tag, "avc1");
  EXPECT_EQ(video.profile, "High");
  EXPECT_EQ(video.pixel_format, "yuv420p");
  EXPECT_EQ(video.color_range, "tv");
  EXPECT_EQ(video.color_space, "bt709");
  EXPECT_EQ(video.color_primaries, "bt709");
  EXPECT_EQ(video.color_transfer, "bt709");
  EXPECT_EQ(video.frame_rate_num, 24 * video.frame_rate_den);
  EXPECT_EQ(video.num_packets, 22);
  EXPECT_EQ(video.width, 96);
  EXPECT_EQ(video.height, 64);
  const StreamInfo& audio = info->streams[1];
  EXPECT_EQ(audio.codec, "aac");
  EXPECT_EQ(audio.codec_tag, "mp4a");
  EXPECT_EQ(audio.profile, "LC");
  EXPECT_EQ(audio.sample_rate_hz, 32000);
  EXPECT_EQ(audio.channels, 2);
  const auto boxes = top_level_boxes(testing::read_file(path));
  const auto moov = std::find(boxes.begin(), boxes.end(), "moov");
  const auto mdat = std::find(boxes.begin(), boxes.end(), "mdat");
  ASSERT_NE(mdat, boxes.end());
  EXPECT_LT(moov, mdat);
  EXPECT_EQ(boxes.front(), "ftyp");
  EXPECT_EQ(entries_in(folder.path()), 1U);
}

TEST(VideoWriter, EveryLengthKeepsFramesTimesAndSound) {
  const TempDir folder;
  for (const char* ending : {".mp4", ".mkv"}) {
    for (const int count : {1, 22, 39, 124}) {
      const auto path = folder / (std::to_string(count) + ending);
      const auto sound = fit_audio(tones(170000), count);
      ASSERT_TRUE(is_ok(write_clip(path, small_options(), many_bars(96, 64, count), sound)));
      const auto clip = read_clip(path);
      ASSERT_TRUE(clip) << clip.error().message;
      ASSERT_EQ(clip->num_frames, count);
      EXPECT_NEAR(clip->fps, 24.0, 1e-9);
      // Matroska's clock ticks in milliseconds.
      const double tolerance = std::string(ending) == ".mp4" ? 1e-9 : 1e-3;
      for (int i = 0; i < count; ++i) {
        EXPECT_NEAR(clip->frame_times_s[static_cast<std::size_t>(i)], i / 24.0, tolerance);
      }
      EXPECT_EQ(clip->sample_rate_hz, 32000);
      // AAC decodes to whole frames of 1024 samples; MP4's own duration says where sound ends.
      const bool is_aac = std::string(ending) == ".mp4";
      EXPECT_NEAR(static_cast<double>(clip->num_samples()),
                  static_cast<double>(samples_for_frames(count)), is_aac ? 1023.0 : 0.0);
      const auto info = probe(path);
      ASSERT_TRUE(info);
      EXPECT_NEAR(info->duration_s, count / 24.0, 0.001);
      if (is_aac) {
        EXPECT_NEAR(info->streams.at(1).duration_s,
                    static_cast<double>(samples_for_frames(count)) / 32000.0,
                    0.001);  // the edit list counts milliseconds
      }
    }
  }
}

TEST(VideoWriter, SoundComesBackInTimeAndOnItsSide) {
  const TempDir folder;
  const auto path = folder / "clip.mp4";
  const auto sound = fit_audio(tones(60000), 39);
  ASSERT_TRUE(is_ok(write_clip(path, small_options(), many_bars(96, 64, 39), sound)));
  const auto clip = read_clip(path);
  ASSERT_TRUE(clip) << clip.error().message;
  ASSERT_EQ(clip->channels, 2);
  const auto written = static_cast<std::size_t>(samples_for_frames(39));
  const auto read = static_cast<std::size_t>(clip->num_samples());
  // Past the encoder's start: the tone, not late by a single sample (which would give 0.1 or more).
  for (const std::size_t channel : {0U, 1U}) {
    double difference = 0.0;
    double norm = 0.0;
    for (std::size_t i = 4096; i < 40000; ++i) {
      const double wanted = sound[channel * written + i];
      difference += std::pow(clip->audio[channel * read + i] - wanted, 2);
      norm += wanted * wanted;
    }
    EXPECT_LT(std::sqrt(difference / norm), 0.03);
  }
}

TEST(VideoWriter, ColourBarsComeBack) {
  const TempDir folder;
  for (const char* name : {"bars.mp4", "bars.mkv"}) {
    constexpr int kWidth = 384;
    constexpr int kHeight = 64;
    auto options = small_options(kWidth, kHeight);
    options.crf = 4;  // what is tested is the conversion, not x264
    options.audio_sample_rate_hz = 0;
    ASSERT_TRUE(is_ok(write_clip(folder / name, options, bars(kWidth, kHeight), {})));
    const auto clip = read_clip(folder / name);
    ASSERT_TRUE(clip) << clip.error().message;
    constexpr int kBarWidth = kWidth / 12;
    for (int bar = 0; bar < 12; ++bar) {
      // Flat part of the bar: chroma of the edges reaches a few pixels in.
      for (int x = bar * kBarWidth + 8; x < (bar + 1) * kBarWidth - 8; ++x) {
        for (int channel = 0; channel < 3; ++channel) {
          const auto at = static_cast<std::size_t>((kHeight / 2 * kWidth + x) * 3 + channel);
          EXPECT_NEAR(
              clip->frames[at],
              testing::kBars[static_cast<std::size_t>(bar)][static_cast<std::size_t>(channel)], 3)
              << name << " bar " << bar << " x " << x << " channel " << channel;
        }
      }
    }
  }
}

// FFmpeg's vector code reads some bytes behind a picture. Frames of whole pages that end where the
// mapping ends, as pinned buffers of a GPU do, must not be read beyond.
TEST(VideoWriter, NothingIsReadBehindTheFrames) {
  constexpr int kWidth = 1344;
  constexpr int kHeight = 768;
  constexpr std::size_t kFrames = 3;
  constexpr std::size_t kBytes = kFrames * 3 * kWidth * kHeight;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t mapped = (kBytes + page - 1) / page * page;
  void* memory =
      mmap(nullptr, mapped + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(mprotect(static_cast<std::uint8_t*>(memory) + mapped, page, PROT_NONE), 0);
  auto* frames = static_cast<std::uint8_t*>(memory) + (mapped - kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) {
    frames[i] = static_cast<std::uint8_t>(i * 7 + i / 4032);
  }
  const TempDir folder;
  for (const bool lossless : {false, true}) {
    VideoWriterOptions options;
    options.width = kWidth;
    options.height = kHeight;
    options.audio_sample_rate_hz = 0;
    options.lossless = lossless;
    auto writer = VideoWriter::create(folder / (lossless ? "clip.mkv" : "clip.mp4"), options);
    ASSERT_TRUE(writer) << writer.error().message;
    ASSERT_TRUE((*writer)->write_frames({frames, kBytes}));
    ASSERT_TRUE((*writer)->finish());
  }
  munmap(memory, mapped + page);
}

TEST(VideoWriter, LosslessMatroskaGivesEveryBitBack) {
  const TempDir folder;
  auto options = small_options(66, 38);
  options.lossless = true;
  const auto frames = busy_frames(66, 38, 5);
  const auto sound = fit_audio(tones(9000), 5);
  ASSERT_TRUE(is_ok(write_clip(folder / "x.mkv", options, frames, sound)));
  const auto clip = read_clip(folder / "x.mkv");
  ASSERT_TRUE(clip) << clip.error().message;
  EXPECT_EQ(clip->frames, frames);
  ASSERT_EQ(clip->audio.size(), sound.size());
  for (std::size_t i = 0; i < sound.size(); ++i) {
    ASSERT_EQ(clip->audio[i], static_cast<float>(to_pcm16(sound[i])) / 32768.0F) << i;
  }
  const auto info = probe(folder / "x.mkv");
  ASSERT_TRUE(info);
  EXPECT_EQ(info->streams.at(0).codec, "ffv1");
  EXPECT_EQ(info->streams.at(1).codec, "flac");
}

TEST(VideoWriter, PngFolderGivesEveryBitBack) {
  const TempDir folder;
  const auto frames = busy_frames(66, 38, 3);
  const auto sound = fit_audio(tones(9000), 3);
  auto options = small_options(66, 38);
  options.metadata["miniacc"] = "{\"prompt\": \"\xE4\xB8\xAD\"}";
  for (const char* target : {"a/", "b/%05d.png"}) {
    ASSERT_TRUE(is_ok(write_clip(folder / target, options, frames, sound)));
    const auto out = (folder / target).parent_path();
    for (const char* name : {"00001.png", "00003.png", "audio.wav", "metadata.json"}) {
      EXPECT_TRUE(std::filesystem::exists(out / name)) << name;
    }
    EXPECT_EQ(entries_in(out), 5U);
    const auto clip = read_clip(out);
    ASSERT_TRUE(clip) << clip.error().message;
    EXPECT_EQ(clip->frames, frames);
    EXPECT_EQ(clip->num_samples(), samples_for_frames(3));
    EXPECT_EQ(read_metadata(out).value(), options.metadata);
  }
  EXPECT_EQ(entries_in(folder.path()), 2U);
}

TEST(VideoWriter, WavIsExactAndCarriesMetadata) {
  const TempDir folder;
  VideoWriterOptions options;
  options.metadata = {{"miniacc", "{\"seed\":7}"}, {"title", "odd"}, {"comment", "caf\xC3\xA9"}};
  const auto path = folder / "x.wav";
  EXPECT_FALSE(VideoWriter::path_has_frames(path).value());
  const auto sound = tones(1234);
  ASSERT_TRUE(is_ok(write_clip(path, options, {}, sound)));
  const auto clip = read_clip(path);
  ASSERT_TRUE(clip) << clip.error().message;
  ASSERT_EQ(clip->audio.size(), sound.size());
  for (std::size_t i = 0; i < sound.size(); ++i) {
    ASSERT_EQ(clip->audio[i], static_cast<float>(to_pcm16(sound[i])) / 32768.0F) << i;
  }
  const auto metadata = read_metadata(path);
  ASSERT_TRUE(metadata) << metadata.error().message;
  for (const auto& [key, value] : options.metadata) {
    EXPECT_EQ(metadata->at(key), value) << key;
  }
  options.metadata["artist"] = "x";
  options.overwrite = true;
  EXPECT_THAT(write_clip(path, options, {}, sound).error().message, HasSubstr("artist"));
}

TEST(VideoWriter, MetadataRoundTripsWithLongUnicodePrompt) {
  const TempDir folder;
  auto options = small_options();
  options.audio_sample_rate_hz = 0;
  std::string prompt = "{\"prompt\":\"";
  while (prompt.size() < 20'000) {
    prompt += "\xE9\x9B\xA8 \xF0\x9F\x8E\xBB \\\"=;#\\n caf\xC3\xA9 ";
  }
  options.metadata = {{"miniacc", prompt + "\"}"}, {"title", "\xE4\xB8\xAD"}, {"comment", "c"}};
  for (const char* name : {"x.mp4", "x.mkv"}) {
    ASSERT_TRUE(is_ok(write_clip(folder / name, options, bars(96, 64), {})));
    const auto metadata = read_metadata(folder / name);
    ASSERT_TRUE(metadata) << metadata.error().message;
    for (const auto& [key, value] : options.metadata) {
      ASSERT_TRUE(metadata->contains(key)) << name << " " << key;
      EXPECT_EQ(metadata->at(key), value) << name << " " << key;
    }
  }
}

TEST(VideoWriter, EqualCallsGiveEqualBytes) {
  const TempDir folder;
  auto options = small_options();
  options.metadata["miniacc"] = "{}";
  for (const std::string ending : {".mp4", ".mkv"}) {
    for (const std::string name : {"a", "b"}) {
      ASSERT_TRUE(is_ok(write_clip(folder / (name + ending), options, busy_frames(96, 64, 30),
                                   fit_audio(tones(50000), 30))));
    }
    EXPECT_EQ(testing::read_file(folder / ("a" + ending)),
              testing::read_file(folder / ("b" + ending)));
  }
}

TEST(VideoWriter, FramesAndSoundMayComeInPieces) {
  const TempDir folder;
  const auto frames = busy_frames(96, 64, 6);
  const auto sound = fit_audio(tones(9000), 6);
  ASSERT_TRUE(is_ok(write_clip(folder / "whole.mp4", small_options(), frames, sound)));
  auto writer = VideoWriter::create(folder / "pieces.mp4", small_options());
  ASSERT_TRUE(writer) << writer.error().message;
  const std::size_t frame = 96 * 64 * 3;
  const std::size_t half = 3001;
  const std::size_t count = sound.size() / 2;
  for (std::size_t i = 0; i < 6; ++i) {
    ASSERT_TRUE(is_ok((*writer)->write_frames({frames.data() + i * frame, frame})));
  }
  for (const auto& [begin, end] : {std::pair<std::size_t, std::size_t>{0, half}, {half, count}}) {
    std::vector<float> part;
    for (const std::size_t channel : {0U, 1U}) {
      part.insert(part.end(), sound.begin() + static_cast<long>(channel * count + begin),
                  sound.begin() + static_cast<long>(channel * count + end));
    }
    ASSERT_TRUE(is_ok((*writer)->write_audio(part)));
  }
  ASSERT_TRUE(is_ok((*writer)->finish()));
  EXPECT_EQ(testing::read_file(folder / "whole.mp4"), testing::read_file(folder / "pieces.mp4"));
}

TEST(VideoWriter, RefusesOptionsThatCannotBe) {
  const TempDir folder;
  const auto expect_refused = [&](const char* name, const VideoWriterOptions& options,
                                  const char* part) {
    const auto writer = VideoWriter::create(folder / name, options);
    ASSERT_FALSE(writer) << part;
    EXPECT_EQ(writer.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(writer.error().message, HasSubstr(part));
  };
  for (const auto& [width, height] :
       {std::pair{97, 64}, {96, 63}, {0, 64}, {96, -2}, {100'000, 64}}) {
    expect_refused("x.mp4", small_options(width, height), "even numbers");
    expect_refused("x/", small_options(width, height), "even numbers");
  }
  auto options = small_options();
  options.crf = 0;
  expect_refused("x.mp4", options, "crf 0");
  options = small_options();
  options.preset = "best";
  expect_refused("x.mp4", options, "\"best\"");
  options = small_options();
  options.lossless = true;
  expect_refused("x.mp4", options, "lossless");
  options = small_options();
  options.audio_sample_rate_hz = -5;
  expect_refused("x.mp4", options, "-5 samples");
  options.audio_sample_rate_hz = 0;
  expect_refused("x.wav", options, "needs sound");
  for (const char* name : {"x.avi", "x", "frame.png", "x.mp4.txt"}) {
    expect_refused(name, small_options(), "must end in");
  }
  EXPECT_EQ(entries_in(folder.path()), 0U);
}

TEST(VideoWriter, RefusesSoundThatIsNotFinite) {
  const TempDir folder;
  auto writer = VideoWriter::create(folder / "x.mp4", small_options());
  ASSERT_TRUE(writer);
  auto sound = tones(1000);
  sound[1500] = std::numeric_limits<float>::quiet_NaN();
  const Status status = (*writer)->write_audio(sound);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("sample 500 of the right"));
  EXPECT_THROW((void)(*writer)->finish(), InternalError);
}

TEST(VideoWriter, MissingPartsAreErrors) {
  const TempDir folder;
  for (const char* name : {"x.mp4", "x/"}) {
    auto silent = VideoWriter::create(folder / name, small_options());
    ASSERT_TRUE(silent);
    ASSERT_TRUE(is_ok((*silent)->write_frames(bars(96, 64))));
    EXPECT_THAT((*silent)->finish().error().message, HasSubstr("none was written"));
    auto empty = VideoWriter::create(folder / name, small_options());
    ASSERT_TRUE(empty);
    EXPECT_THAT((*empty)->finish().error().message, HasSubstr("no frame"));
    EXPECT_THROW((void)(*empty)->write_frames(bars(96, 64)), InternalError);
  }
  EXPECT_EQ(entries_in(folder.path()), 0U);
}

}  // namespace
}  // namespace miniacc
