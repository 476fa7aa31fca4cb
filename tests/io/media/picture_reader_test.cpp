#include "io/media/picture_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>

#include "io/error_matchers.h"
#include "io/file_util.h"
#include "io/media/clip_fixture.h"
#include "io/media/input_probe.h"
#include "io/media/media_bytes.h"
#include "support/golden.h"

namespace miniacc {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TempDir;
using testing::write_old_file;

/// Largest difference to Pillow that a format's own freedom allows: lossy decoders round inverse
/// transforms and chroma in ways of their own; all others are exact.
int tolerance(const std::string& name) {
  static const std::map<std::string, int> kMeasured = {{"avif", 1},       {"jpeg", 4},
                                                       {"webp_lossy", 3}, {"webp_alpha", 3},
                                                       {"tiff_cmyk", 1},  {"heic_grid", 1}};
  for (const auto& [prefix, bound] : kMeasured) {
    if (name.rfind(prefix, 0) == 0) {
      return bound;
    }
  }
  return 0;
}

std::string ending(const std::string& name) { return "." + name.substr(0, name.find('_')); }

class PictureReader : public ::testing::Test {
 protected:
  /// A file of pictures.safetensors under its format's ending, or another one.
  std::filesystem::path stored(const std::string& name, const std::string& as = "") {
    const std::filesystem::path path = folder_ / (as.empty() ? name + ending(name) : as);
    write_old_file(path, bytes(name));
    return path;
  }
  std::string bytes(const std::string& name) {
    const std::vector<std::uint8_t> data = golden_.bytes(name + ".file");
    return {data.begin(), data.end()};
  }
  /// Reads a stored picture and compares it with what Pillow reads.
  void expect_pillows(const std::string& name) {
    const auto picture = read_picture(stored(name));
    ASSERT_TRUE(picture) << picture.error().message;
    const Shape shape = golden_.shape(name + ".rgb");
    const std::vector<std::uint8_t> wanted = golden_.bytes(name + ".rgb");
    ASSERT_EQ(picture->image.height, shape[0]) << name;
    ASSERT_EQ(picture->image.width, shape[1]) << name;
    ASSERT_EQ(picture->image.pixels.size(), wanted.size());
    int worst = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      worst = std::max(worst, std::abs(picture->image.pixels[i] - wanted[i]));
    }
    EXPECT_LE(worst, tolerance(name)) << name;
    const auto info = probe_picture(stored(name));
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_EQ(info->width, shape[1]) << name;
    EXPECT_EQ(info->height, shape[0]) << name;
  }

  testing::Golden golden_{"golden/pictures.safetensors"};
  TempDir folder_;
};

// I01: every kind of pixel gives what the 8-bit RGB file of the same picture gives.
TEST_F(PictureReader, EveryKindOfPixelBecomesRgb) {
  for (const char* name : {"png_rgb",
                           "png_grey",
                           "png_grey_alpha",
                           "png_rgba",
                           "png_palette",
                           "png_palette_alpha",
                           "png_palette_key",
                           "png_rgb_key",
                           "png_grey_key",
                           "png_1_bit",
                           "png_palette_2_bits",
                           "png_palette_4_bits",
                           "png_rgb_16",
                           "png_grey_16",
                           "png_rgba_16",
                           "jpeg_444",
                           "jpeg_420",
                           "jpeg_grey",
                           "jpeg_progressive",
                           "jpeg_cmyk",
                           "webp_lossless",
                           "webp_lossy",
                           "webp_alpha",
                           "webp_lossless_alpha",
                           "gif",
                           "gif_alpha",
                           "bmp",
                           "bmp_palette",
                           "bmp_32_bits",
                           "tiff",
                           "tiff_lzw",
                           "tiff_deflate",
                           "tiff_grey_16",
                           "tiff_1_bit",
                           "tiff_rgba",
                           "tiff_cmyk",
                           "avif",
                           "avif_alpha",
                           "heic",
                           "heic_alpha",
                           "heic_grid"}) {
    expect_pillows(name);
  }
}

// I07: all eight orientations in every format that has them.
TEST_F(PictureReader, AllOrientationsAreApplied) {
  for (const char* format : {"jpeg", "png", "webp", "tiff", "avif"}) {
    for (int orientation = 1; orientation <= 8; ++orientation) {
      expect_pillows(std::string(format) + "_turned_" + std::to_string(orientation));
    }
  }
  for (const char* orientation : {"3", "5", "6", "8"}) {
    expect_pillows(std::string("heic_turned_") + orientation);
  }
  const auto turned = read_picture(stored("jpeg_turned_6"));
  ASSERT_TRUE(turned);
  EXPECT_THAT(turned->notes, ElementsAre("is turned by 90 degrees clockwise, as it says"));
}

TEST_F(PictureReader, FirstFrameOfAnAnimation) {
  for (const char* name : {"png_animated", "webp_animated", "gif_animated"}) {
    expect_pillows(name);
    const auto picture = read_picture(stored(name));
    ASSERT_TRUE(picture);
    EXPECT_THAT(picture->notes, ElementsAre("has several frames; the first is used")) << name;
  }
}

TEST_F(PictureReader, TransparencyIsLaidOverTheBackground) {
  const auto white = read_picture(stored("png_rgba"));
  ASSERT_TRUE(white);
  EXPECT_THAT(white->notes, ElementsAre(HasSubstr("laid over the colour (255, 255, 255)")));
  PictureOptions options;
  options.background = {10, 20, 30};
  for (const char* name : {"png_rgba", "webp_lossless_alpha", "heic_alpha", "gif_alpha"}) {
    const auto picture = read_picture(stored(name), options);
    ASSERT_TRUE(picture) << name;
    // The first pixel is fully transparent.
    EXPECT_EQ(std::vector(picture->image.pixels.begin(), picture->image.pixels.begin() + 3),
              (std::vector<std::uint8_t>{10, 20, 30}))
        << name;
    EXPECT_THAT(picture->notes, ElementsAre(HasSubstr("(10, 20, 30)"))) << name;
  }
  EXPECT_THAT(read_picture(stored("png_rgb"))->notes, IsEmpty());
}

TEST_F(PictureReader, ContentDecidesNotTheEnding) {
  const auto picture = read_picture(stored("jpeg_444", "really.PNG"));
  ASSERT_TRUE(picture) << picture.error().message;
  EXPECT_THAT(picture->notes, ElementsAre("is a JPEG picture, whatever its ending .PNG says"));
  EXPECT_THAT(read_picture(stored("jpeg_444", "no_ending"))->notes, IsEmpty());
  EXPECT_THAT(read_picture(stored("jpeg_444", "x.JPG"))->notes, IsEmpty());
}

// I15: folders and files with names in any script.
TEST_F(PictureReader, PathsOfAnyScript) {
  std::filesystem::create_directory(folder_ / "папка 画像");
  EXPECT_TRUE(read_picture(stored("png_rgb", "папка 画像/été 🦊.png")));
  EXPECT_TRUE(read_picture(stored("png_rgb", "concat:a|b %d.png")));
}

TEST_F(PictureReader, OtherThingsAreNamed) {
  const auto film = folder_ / "film.png";
  ASSERT_TRUE(testing::is_ok(testing::write_clip(folder_ / "film.mp4", testing::small_options(),
                                                 testing::busy_frames(96, 64, 3),
                                                 fit_audio(testing::tones(8000), 3))));
  std::filesystem::rename(folder_ / "film.mp4", film);
  expect_error(read_picture(film), "film.png: is an MP4 or MOV file, wanted a picture");
  const std::tuple<const char*, std::string, ErrorCode, const char*> cases[] = {
      {"a.svg", "<?xml version='1.0'?><svg/>", ErrorCode::kUnsupported, "is an SVG drawing"},
      {"a.pdf", "%PDF-1.7 ...............", ErrorCode::kUnsupported, "is a PDF document"},
      {"a.jxl", "\xFF\x0A.............", ErrorCode::kUnsupported, "is a JPEG XL picture"},
      {"a.psd", "8BPS.............", ErrorCode::kUnsupported, "is a Photoshop document"},
      {"a.jpg", "<!DOCTYPE html><html>", ErrorCode::kInvalidInput, "is a web page"},
      {"a.png", "version https://git-lfs.github.com/spec/v1", ErrorCode::kInvalidInput,
       "git lfs pull"},
      {"b.png", std::string(4000, '\0'), ErrorCode::kInvalidInput, "is filled with zeros"},
      {"c.png", "hello", ErrorCode::kInvalidInput, "in no format that is known here"},
      {"d.png", "#EXTM3U\nhttp://example.org/a.png\n", ErrorCode::kInvalidInput, "a playlist"},
  };
  for (const auto& [name, content, code, part] : cases) {
    write_old_file(folder_ / name, content);
    expect_error(read_picture(folder_ / name), part, code);
    expect_error(probe_picture(folder_ / name), part, code);
  }
}

TEST_F(PictureReader, WhatIsNoFileIsNamed) {
  expect_error(read_picture(folder_ / "none.png"), "none.png: no such file", ErrorCode::kNotFound);
  expect_error(read_picture(folder_.path()), "is a folder, wanted a picture");
  ASSERT_EQ(::mkfifo((folder_ / "pipe.png").c_str(), 0600), 0);
  expect_error(read_picture(folder_ / "pipe.png"), "pipe.png: is a pipe, wanted a picture");
  expect_error(read_picture("/dev/zero"), "is a device, wanted a picture");
  expect_error(read_picture("http://example.org/a.png"), "no such file", ErrorCode::kNotFound);
  write_old_file(folder_ / "empty.png", "");
  expect_error(read_picture(folder_ / "empty.png"), "empty.png: is empty (0 bytes)");
}

// A picture is whole or refused, wherever it is cut.
TEST_F(PictureReader, TruncationIsAnError) {
  for (const char* name :
       {"png_rgb", "jpeg_444", "jpeg_progressive", "webp_lossless", "webp_lossy", "webp_alpha",
        "gif", "bmp", "tiff", "tiff_lzw", "tiff_deflate", "avif", "heic", "heic_grid"}) {
    const std::string whole = bytes(name);
    for (std::size_t size = 1; size < whole.size(); size += 1 + whole.size() / 60) {
      write_old_file(folder_ / "cut", whole.substr(0, size));
      const auto picture = read_picture(folder_ / "cut");
      EXPECT_FALSE(picture) << name << " cut to " << size << " of " << whole.size();
      if (!picture) {
        EXPECT_THAT(picture.error().message, HasSubstr("cut: is "));
      }
    }
  }
}

TEST_F(PictureReader, ThinPicturesAreRead) {
  for (const auto& [width, height] : {std::pair{1, 640}, {640, 1}, {1, 1}}) {
    const std::string png = testing::png_bytes(width, height, {200, 100, 50});
    write_old_file(folder_ / "thin.png", png);
    const auto picture = read_picture(folder_ / "thin.png");
    ASSERT_TRUE(picture) << picture.error().message;
    EXPECT_EQ(picture->image.width, width);
    EXPECT_EQ(picture->image.height, height);
    EXPECT_EQ(picture->image.pixels.back(), 50);
  }
}

// I09: both numbers are in the refusal, and it needs no decoding.
TEST_F(PictureReader, SizeIsLimitedByTheHeader) {
  const std::string bomb = testing::png_bytes(30000, 30000, {0, 0, 0}, /*rows=*/1);
  write_old_file(folder_ / "bomb.png", bomb);
  const char* refusal = "bomb.png: has 30000x30000 pixels, at most 64000000 in all are accepted";
  expect_error(read_picture(folder_ / "bomb.png"), refusal);
  expect_error(probe_picture(folder_ / "bomb.png"), refusal);
  const auto limited = read_picture(stored("png_rgb"), {.max_pixels = 32 * 20 - 1});
  expect_error(limited, "has 32x20 pixels, at most 639");
  EXPECT_TRUE(read_picture(stored("png_rgb"), {.max_pixels = 32 * 20}));
  expect_error(read_picture(stored("png_rgb"), {.max_file_bytes = 100}),
               "bytes, at most 100 are accepted");
  expect_error(read_picture(stored("png_rgb"), {.max_pixels = 0}), "limits",
               ErrorCode::kInvalidArgument);
  // A frame inside that is larger than the header says.
  for (const char* name : {"webp_lossy", "gif", "avif", "heic", "jpeg_444"}) {
    const auto picture = read_picture(stored(name), {.max_pixels = 100});
    expect_error(picture, "at most 100 in all");
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/// Peak of this process's resident memory since the last call, in bytes.
std::int64_t take_peak_bytes() {
  std::int64_t kib = 0;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) {
      kib = std::atoll(line.c_str() + 6);
    }
  }
  std::ofstream("/proc/self/clear_refs") << "5";
  return kib * 1024;
}

// 40 megapixels are within the limit: less than a megabyte that unfolds to 120 MB is read, and no
// more memory is taken than the decoder's frame and the result need.
TEST_F(PictureReader, FortyMegapixelBombTakesBoundedMemory) {
  write_old_file(folder_ / "bomb.png", testing::png_bytes(8000, 5000, {1, 2, 3}));
  ASSERT_LT(std::filesystem::file_size(folder_ / "bomb.png"), 1'000'000U);
  take_peak_bytes();
  const std::int64_t before = take_peak_bytes();
  const auto picture = read_picture(folder_ / "bomb.png");
  ASSERT_TRUE(picture) << picture.error().message;
  EXPECT_LT(take_peak_bytes() - before, std::int64_t{40'000'000} * 8);
}
#endif

TEST_F(PictureReader, CompressedTextsAndProfilesAreNeverUnfolded) {
  // A text chunk of 64 MB in 64 KB, and a colour profile likewise.
  const std::string zeros = testing::deflated(std::string(64 << 20, '\0'));
  std::string png = bytes("png_rgb");
  const std::size_t after_header = 8 + 25;
  png.insert(after_header, testing::png_chunk("zTXt", std::string("k\0\0", 3) + zeros) +
                               testing::png_chunk("iCCP", std::string("p3\0\0", 4) + zeros));
  write_old_file(folder_ / "text.png", png);
  const auto picture = read_picture(folder_ / "text.png");
  ASSERT_TRUE(picture) << picture.error().message;
  EXPECT_EQ(picture->image.pixels, golden_.bytes("png_rgb.rgb"));
  EXPECT_THAT(picture->notes, ElementsAre(HasSubstr("colour profile is not applied")));
}

TEST_F(PictureReader, DamageIsAnError) {
  std::string png = bytes("png_rgb");
  png[png.find("IDAT") + 10] ^= 1;  // a check sum no longer fits
  write_old_file(folder_ / "x.png", png);
  expect_error(read_picture(folder_ / "x.png"), "is a PNG picture that is damaged");
  std::string jpeg = bytes("jpeg_444");
  const std::size_t frame_header = jpeg.find("\xFF\xC0");
  std::string twice = jpeg;
  twice.insert(frame_header, jpeg.substr(frame_header, 19));
  write_old_file(folder_ / "x.jpg", twice);
  expect_error(read_picture(folder_ / "x.jpg"), "two frame headers");
  jpeg[frame_header + 4] = 12;
  write_old_file(folder_ / "x.jpg", jpeg);
  expect_error(read_picture(folder_ / "x.jpg"), "JPEG of 12 bits", ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace miniacc
