#include "runtime/vision_resize.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/golden.h"
#include "support/test_picture.h"

namespace miniacc {
namespace {

using testing::Golden;
using testing::test_picture;

// Every byte is that of torchvision: growing, shrinking, one axis alone, extreme ratios.
TEST(VisionResize, BytesAreThoseOfTheReference) {
  const Golden golden("golden/vision.safetensors");
  const auto sizes = golden.integers("resize.sizes");
  ASSERT_EQ(sizes.size(), 7U * 4U);
  for (std::size_t i = 0; i < sizes.size() / 4; ++i) {
    const std::int64_t* size = &sizes[4 * i];
    const RgbImage out = resize_for_vision(
        test_picture(size[0], size[1], static_cast<std::int64_t>(i)), size[3], size[2]);
    EXPECT_EQ(out.height, size[2]);
    EXPECT_EQ(out.width, size[3]);
    EXPECT_TRUE(out.pixels == golden.bytes("resize." + std::to_string(i))) << i;
  }
}

TEST(VisionResize, ItsOwnSizeIsACopyAndConstantsStay) {
  const RgbImage image = test_picture(20, 30, 1);
  EXPECT_EQ(resize_for_vision(image, 30, 20).pixels, image.pixels);
  for (const std::uint8_t level : {0, 1, 127, 254, 255}) {
    const RgbImage flat{.width = 9, .height = 11, .pixels = std::vector<std::uint8_t>(297, level)};
    const RgbImage out = resize_for_vision(flat, 31, 4);
    EXPECT_EQ(out.pixels, std::vector<std::uint8_t>(out.pixels.size(), level)) << int{level};
  }
}

TEST(VisionResize, RefusesWhatIsNoPicture) {
  const RgbImage image = test_picture(4, 4, 0);
  EXPECT_THROW((void)resize_for_vision(image, 0, 4), InternalError);
  EXPECT_THROW((void)resize_for_vision(image, 4, -1), InternalError);
  EXPECT_THROW((void)resize_for_vision({}, 4, 4), InternalError);
  RgbImage cut = image;
  cut.pixels.pop_back();
  EXPECT_THROW((void)resize_for_vision(cut, 8, 8), InternalError);
}

}  // namespace
}  // namespace miniacc
