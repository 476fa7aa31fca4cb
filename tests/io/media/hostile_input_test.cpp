#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <thread>

#include "io/error_matchers.h"
#include "io/file_util.h"
#include "io/media/clip_fixture.h"
#include "io/media/input_file.h"
#include "io/media/input_probe.h"
#include "io/media/media_bytes.h"
#include "io/media/picture_reader.h"
#include "io/media/reference_clip.h"
#include "io/media/sound_reader.h"
#include "support/golden.h"

namespace miniacc {
namespace {

using testing::expect_error;
using ::testing::HasSubstr;
using testing::run_ffmpeg;
using testing::TempDir;
using testing::write_old_file;

/// One to eight changes of a file: bytes replaced, bits turned, stretches removed, doubled or
/// filled, numbers made huge.
std::string mutated(const std::string& whole, std::mt19937& random) {
  std::string bytes = whole;
  const auto below = [&](std::size_t bound) {
    return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random);
  };
  for (std::size_t changes = 1 + below(8); changes > 0 && bytes.size() > 1; --changes) {
    // Half of the changes hit the first 300 bytes, where headers are.
    const std::size_t at =
        below(below(2) == 0 ? std::min<std::size_t>(bytes.size(), 300) : bytes.size());
    const std::size_t length = 1 + below(std::min<std::size_t>(bytes.size() - at, 40));
    switch (below(6)) {
      case 0:
        bytes[at] = static_cast<char>(below(256));
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 2:
        bytes.erase(at, length);
        break;
      case 3:
        bytes.insert(at, bytes.substr(at, length));
        break;
      case 4:
        for (std::size_t i = at; i < at + length; ++i) {
          bytes[i] = '\xFF';
        }
        break;
      default:
        bytes.resize(at + 1);
        break;
    }
  }
  return bytes;
}

class HostileInput : public ::testing::Test {
 protected:
  /// Every mutation of `whole` gives a result or an error that names the file; nothing else.
  void expect_results(const std::string& name, const std::string& whole, int count,
                      const std::function<std::string(const std::filesystem::path&)>& read) {
    std::mt19937 random(20240607);
    const std::filesystem::path path = folder_ / name;
    int refused = 0;
    for (int i = 0; i < count; ++i) {
      write_old_file(path, mutated(whole, random));
      const std::string message = read(path);
      refused += message.empty() ? 0 : 1;
      if (!message.empty()) {
        ASSERT_THAT(message, HasSubstr(name)) << "mutation " << i;
      }
    }
    EXPECT_GT(refused, 0) << name;
  }
  static std::string picture_message(const std::filesystem::path& path) {
    const auto probed = probe_picture(path);
    const auto picture = read_picture(path, {.max_pixels = 1'000'000});
    if (picture) {
      EXPECT_EQ(static_cast<std::int64_t>(picture->image.pixels.size()),
                picture->image.width * picture->image.height * 3);
      EXPECT_TRUE(probed && probed->width == picture->image.width &&
                  probed->height == picture->image.height);
    }
    return picture ? "" : picture.error().message;
  }
  static std::string clip_message(const std::filesystem::path& path) {
    ReferenceClipOptions options;
    options.max_frames = 40;
    options.max_pixels = 1'000'000;
    const auto probed = probe_clip(path);
    const auto clip = read_reference_clip(path, options);
    return clip ? "" : clip.error().message;
  }
  static std::string sound_message(const std::filesystem::path& path) {
    const auto probed = probe_sound(path);
    const auto clip = read_sound(path, {.max_seconds = 2.0});
    return clip ? "" : clip.error().message;
  }
  TempDir folder_;
};

TEST_F(HostileInput, MutatedPicturesGiveResults) {
  const testing::Golden golden("golden/pictures.safetensors");
  const std::pair<const char*, int> cases[] = {
      {"png_palette_alpha", 300}, {"png_rgb", 300},     {"jpeg_turned_6", 300},
      {"jpeg_progressive", 200},  {"webp_alpha", 200},  {"webp_animated", 200},
      {"gif_animated", 200},      {"bmp_palette", 200}, {"tiff_lzw", 200},
      {"tiff_rgba", 200},         {"avif_alpha", 200},  {"heic_alpha", 200},
      {"heic_grid", 200}};
  for (const auto& [name, count] : cases) {
    const std::vector<std::uint8_t> bytes = golden.bytes(std::string(name) + ".file");
    expect_results(name, {bytes.begin(), bytes.end()}, count, picture_message);
  }
}

TEST_F(HostileInput, MutatedSoundsGiveResults) {
  std::vector<float> samples;
  for (int i = 0; i < 4000; ++i) {
    samples.push_back(static_cast<float>(i % 100) / 200.0F);
  }
  write_old_file(folder_ / "s.wav", testing::wav_bytes(samples, 2, 24000));
  for (const char* name : {"m.wav", "m.flac", "m.mp3", "m.m4a", "m.ogg", "m.opus", "m.aac"}) {
    ASSERT_TRUE(run_ffmpeg("-i " + (folder_ / "s.wav").string() + " " + (folder_ / name).string()));
    expect_results(name, testing::read_file(folder_ / name), 200, sound_message);
  }
}

TEST_F(HostileInput, MutatedClipsGiveResults) {
  for (const auto& [name, codec] :
       {std::pair{"m.mp4", "-c:v libx264 -c:a aac"}, std::pair{"m.mkv", "-c:v ffv1 -c:a flac"},
        std::pair{"m.webm", "-c:v libvpx-vp9 -c:a libopus"}, std::pair{"m.mov", "-c:v mjpeg"},
        std::pair{"m.avi", "-c:v mpeg4 -c:a libmp3lame"}}) {
    const auto path = folder_ / name;
    ASSERT_TRUE(
        run_ffmpeg("-f lavfi -i testsrc=s=48x32:r=12:d=1 -f lavfi -i sine=d=1 -pix_fmt "
                   "yuv420p " +
                   std::string(codec) + " " + path.string()));
    const std::string whole = testing::read_file(path);
    expect_results(name, whole, 200, clip_message);
    expect_results(name, whole, 100, sound_message);
  }
}

TEST_F(HostileInput, AChangedFileIsNoticed) {
  const auto path = folder_ / "x.bin";
  const std::pair<const char*, std::function<void()>> changes[] = {
      {"longer", [&] { std::ofstream(path, std::ios::app) << "more"; }},
      {"shorter", [&] { std::filesystem::resize_file(path, 3); }},
      {"same size", [&] { std::ofstream(path, std::ios::in) << "HELLO"; }},
      {"time set back", [&] {
         std::ofstream(path, std::ios::in) << "HELLO";
         const timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
         ::utimensat(AT_FDCWD, path.c_str(), times, 0);
       }}};
  for (const auto& [name, change] : changes) {
    write_old_file(path, "hello world");
    ::usleep(20'000);  // so that the change has another time than the write
    const auto file = InputFile::open(path, "a file");
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->check_unchanged());
    change();
    const Status status = file->check_unchanged();
    ASSERT_FALSE(status) << name;
    EXPECT_THAT(status.error().message, HasSubstr("x.bin: was changed while it was read"));
  }
}

TEST_F(HostileInput, AReplacedFileIsReadAsItWas) {
  const auto path = folder_ / "x.bin";
  write_old_file(path, "hello world");
  const auto file = InputFile::open(path, "a file");
  ASSERT_TRUE(file);
  write_old_file(folder_ / "other", "something else, and longer");
  const auto before = file->read_all(100);
  ASSERT_TRUE(before);
  std::filesystem::rename(folder_ / "other", path);
  const auto bytes = file->read_all(100);
  ASSERT_TRUE(bytes);
  EXPECT_EQ(std::string(bytes->begin(), bytes->end()), "hello world");
}

// Somebody rewrites the file all the time: one version or the other, or an error, never a mixture.
TEST_F(HostileInput, NeverAMixtureOfTwoVersions) {
  const auto path = folder_ / "x.wav";
  const auto version = [](float value) {
    return testing::wav_bytes(std::vector<float>(100'000, value), 1, 32000);
  };
  const std::string versions[] = {version(0.25F), version(0.5F)};
  testing::write_file(path, versions[0]);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (int i = 1; !stop; ++i) {
      std::ofstream stream(path, std::ios::binary | std::ios::in);
      const std::string& bytes = versions[i % 2];
      for (std::size_t at = 0; at < bytes.size() && !stop; at += 20'000) {
        stream.write(bytes.data() + at, static_cast<std::streamsize>(
                                            std::min<std::size_t>(20'000, bytes.size() - at)));
        stream.flush();
        ::usleep(200);
      }
      ::usleep(static_cast<useconds_t>(i % 3 == 0 ? 40'000 : 1000));
    }
  });
  int refused = 0;
  // As often as it takes on a busy machine to meet the writer at work.
  for (int i = 0; i < 40 || (refused == 0 && i < 1000); ++i) {
    const auto clip = read_sound(path);
    if (!clip) {
      ++refused;
      EXPECT_THAT(clip.error().message, HasSubstr("x.wav"));
      continue;
    }
    for (const float sample : clip->sound.samples) {
      ASSERT_EQ(sample, clip->sound.samples.front()) << "read " << i;
    }
  }
  stop = true;
  writer.join();
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace miniacc
