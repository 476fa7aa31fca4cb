#include "model/vision/vision_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/golden.h"

namespace miniacc {
namespace {

using testing::Golden;
using ::testing::HasSubstr;

TEST(VisionSize, ImagesMatchTheReference) {
  const Golden golden("golden/vision.safetensors");
  const auto sizes = golden.integers("sizes.images");
  const auto resized = golden.integers("sizes.images_resized");
  ASSERT_GT(sizes.size(), 40U);
  for (std::size_t i = 0; i < sizes.size(); i += 2) {
    const auto size = vision_size(sizes[i + 1], sizes[i], VisionKind::kImage);
    ASSERT_TRUE(size) << size.error().message;
    EXPECT_EQ(size->height, resized[i]) << sizes[i] << "x" << sizes[i + 1];
    EXPECT_EQ(size->width, resized[i + 1]) << sizes[i] << "x" << sizes[i + 1];
  }
}

TEST(VisionSize, VideosMatchTheReference) {
  const Golden golden("golden/vision.safetensors");
  const auto sizes = golden.integers("sizes.videos");
  const auto resized = golden.integers("sizes.videos_resized");
  ASSERT_GT(sizes.size(), 50U);
  for (std::size_t i = 0, out = 0; i < sizes.size(); i += 3, out += 2) {
    const auto size = vision_size(sizes[i + 2], sizes[i + 1], VisionKind::kVideo, sizes[i]);
    ASSERT_TRUE(size) << size.error().message;
    EXPECT_EQ(size->height, resized[out]) << sizes[i] << "x" << sizes[i + 1] << "x" << sizes[i + 2];
    EXPECT_EQ(size->width, resized[out + 1]) << sizes[i] << "x" << sizes[i + 1];
  }
}

// Spec text_encoder.md §10.4: height, width -> height, width, tokens.
TEST(VisionSize, WorkedExamples) {
  struct Row {
    std::int64_t height, width, new_height, new_width, tokens;
  };
  for (const Row& row : {Row{768, 1344, 768, 1344, 1008}, Row{1080, 1920, 1088, 1920, 2040},
                         Row{720, 1280, 704, 1280, 880}, Row{1100, 1744, 1088, 1728, 1836},
                         Row{100, 150, 224, 320, 70}, Row{208, 240, 256, 288, 72},
                         Row{4000, 6000, 3328, 4992, 16224}, Row{2048, 8192, 2048, 8192, 16384}}) {
    const VisionSize size = vision_size(row.width, row.height, VisionKind::kImage).value();
    EXPECT_EQ(size, (VisionSize{.width = row.new_width, .height = row.new_height}));
    EXPECT_EQ(size.grid().num_tokens(), row.tokens);
  }
  struct Clip {
    std::int64_t frames, height, width, new_height, new_width;
  };
  for (const Clip& clip : {Clip{24, 768, 1344, 768, 1344}, Clip{25, 768, 1344, 768, 1344},
                           Clip{26, 768, 1344, 736, 1280}, Clip{27, 768, 1344, 704, 1248},
                           Clip{29, 768, 1344, 704, 1216}, Clip{29, 768, 768, 768, 768}}) {
    const VisionSize size =
        vision_size(clip.width, clip.height, VisionKind::kVideo, clip.frames).value();
    EXPECT_EQ(size, (VisionSize{.width = clip.new_width, .height = clip.new_height}))
        << clip.frames;
  }
  EXPECT_EQ(vision_size(1344, 768, VisionKind::kVideo, 29)->grid().num_tokens(), 836);
}

TEST(VisionSize, RefusesWhatNoGridIsFor) {
  const auto message = [](const Result<VisionSize>& size) {
    return size ? std::string("accepted") : size.error().message;
  };
  EXPECT_THAT(message(vision_size(640, 1, VisionKind::kImage)), HasSubstr("640x1"));
  EXPECT_THAT(message(vision_size(0, 10, VisionKind::kImage)), HasSubstr("sides from 1"));
  EXPECT_THAT(message(vision_size(10, -1, VisionKind::kVideo, 4)), HasSubstr("sides from 1"));
  EXPECT_THAT(message(vision_size(std::int64_t{1} << 40, 64, VisionKind::kImage)),
              HasSubstr("sides from 1"));
  EXPECT_THAT(message(vision_size(64, 64, VisionKind::kVideo, 1)), HasSubstr("1 sampled frames"));
  EXPECT_THROW((void)vision_size(64, 64, VisionKind::kImage, 2), InternalError);
  EXPECT_TRUE(vision_size(200, 1, VisionKind::kImage));
}

}  // namespace
}  // namespace miniacc
