#include "io/media/media_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "io/file_util.h"
#include "io/media/clip_fixture.h"

namespace miniacc {
namespace {

using testing::busy_frames;
using ::testing::HasSubstr;
using testing::is_ok;
using testing::small_options;
using testing::TempDir;
using testing::tones;
using testing::write_clip;

class MediaReader : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(is_ok(
        write_clip(path_, small_options(), busy_frames(96, 64, 10), fit_audio(tones(20000), 10))));
  }
  TempDir folder_;
  std::filesystem::path path_ = folder_ / "x.mp4";
};

TEST_F(MediaReader, LimitsAreRefusals) {
  const std::pair<ClipLimits, const char*> cases[] = {
      {{.max_frames = 9}, "more than 9 frames"},
      {{.max_bytes = 100'000}, "more than 100000 bytes"},
      {{.max_pixels = 1000}, "x.mp4"},
  };
  for (const auto& [limits, part] : cases) {
    const auto clip = read_clip(path_, limits);
    ASSERT_FALSE(clip) << part;
    EXPECT_THAT(clip.error().message, HasSubstr(part));
  }
  EXPECT_TRUE(read_clip(path_, {.max_frames = 10}));
}

TEST_F(MediaReader, DamageIsAnError) {
  const std::string good = testing::read_file(path_);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{7}, std::size_t{600}, good.size() / 2}) {
    testing::write_file(folder_ / "cut.mp4", good.substr(0, size));
    EXPECT_FALSE(read_clip(folder_ / "cut.mp4")) << size;
  }
  std::string holed = good;
  const std::size_t begin = good.find("mdat") + 3000;
  for (std::size_t i = begin; i < begin + 2000; ++i) {
    holed[i] = static_cast<char>(~holed[i]);
  }
  testing::write_file(folder_ / "holed.mp4", holed);
  EXPECT_FALSE(read_clip(folder_ / "holed.mp4"));
}

TEST_F(MediaReader, OnlySelfContainedMediaIsOpened) {
  const std::pair<const char*, std::string> cases[] = {
      {"list.m3u8", "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n" + path_.string() + "\n"},
      {"list.ffconcat", "ffconcat version 1.0\nfile x.mp4\n"},
      {"text.mp4", "this is not a film"}};
  for (const auto& [name, content] : cases) {
    testing::write_file(folder_ / name, content);
    EXPECT_FALSE(probe(folder_ / name)) << name;
    EXPECT_FALSE(read_clip(folder_ / name)) << name;
    EXPECT_FALSE(read_metadata(folder_ / name)) << name;
  }
}

TEST_F(MediaReader, MissingFilesAndEmptyFoldersAreNamed) {
  const auto missing = probe(folder_ / "none.mp4");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("none.mp4"));
  const auto folder = read_clip(folder_.path());
  ASSERT_FALSE(folder);
  EXPECT_THAT(folder.error().message, HasSubstr("no frame 00001.png"));
  EXPECT_FALSE(probe(folder_.path()));
}

TEST_F(MediaReader, FolderMetadataMustBeAnObjectOfStrings) {
  EXPECT_TRUE(read_metadata(folder_.path()).value().empty());
  for (const char* text : {"[", "[]", "{\"a\": 1}", "7"}) {
    testing::write_file(folder_ / "metadata.json", text);
    EXPECT_FALSE(read_metadata(folder_.path())) << text;
  }
}

}  // namespace
}  // namespace miniacc
