#include "model/vision/patches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "device/cpu_device.h"
#include "support/compare.h"
#include "support/golden.h"
#include "support/test_picture.h"

namespace miniacc {
namespace {

using testing::Golden;
using testing::identical_to;
using testing::test_picture;

TEST(PatchRows, PictureHasTheBitsOfTheReference) {
  CpuDevice device;
  const Golden golden("golden/vision.safetensors");
  const RgbImage image = test_picture(32, 64, 3);
  const Tensor rows = patch_rows(device, {&image, 1});
  EXPECT_EQ(rows.shape(), Shape({8, 1536}));
  EXPECT_TRUE(identical_to(rows.f32(), golden.floats("patches.image")));
}

// Three frames: the second pair repeats the third.
TEST(PatchRows, VideoPairsHaveTheBitsOfTheReference) {
  CpuDevice device;
  const Golden golden("golden/vision.safetensors");
  const std::vector<RgbImage> frames = {test_picture(32, 32, 0), test_picture(32, 32, 1),
                                        test_picture(32, 32, 2), test_picture(32, 32, 2)};
  const std::vector<float> expected = golden.floats("patches.video");
  const Tensor first = patch_rows(device, std::span(frames).first(2));
  const Tensor second = patch_rows(device, std::span(frames).last(2));
  ASSERT_EQ(first.f32().size() + second.f32().size(), expected.size());
  EXPECT_TRUE(identical_to(first.f32(), std::span(expected).first(first.f32().size())));
  EXPECT_TRUE(identical_to(second.f32(), std::span(expected).last(second.f32().size())));
}

TEST(PatchRows, EveryByteIsNormalisedAsInTheReference) {
  CpuDevice device;
  const Golden golden("golden/vision.safetensors");
  RgbImage image{.width = 32, .height = 32, .pixels = std::vector<std::uint8_t>(32 * 32 * 3)};
  for (std::size_t i = 0; i < image.pixels.size(); ++i) {
    const std::size_t pixel = i / 3;
    image.pixels[i] = static_cast<std::uint8_t>((pixel / 32 % 16) * 16 + pixel % 32 % 16);
  }
  const Tensor rows = patch_rows(device, {&image, 1});
  EXPECT_TRUE(identical_to(rows.f32().first(256), golden.floats("patches.ramp")));
  EXPECT_EQ(rows.f32()[0], -1.0F);
  EXPECT_EQ(rows.f32()[255], 1.0F);
}

// Patch rows of a grid of 4×6: blocks of 2×2 in raster order.
TEST(PatchRows, FourConsecutiveRowsAreOneToken) {
  const VisionGrid grid = {.height = 4, .width = 6};
  const auto at = [&](std::int64_t row) {
    const PatchPosition position = patch_position(grid, row);
    return std::pair(position.y, position.x);
  };
  EXPECT_EQ(at(0), std::pair(0L, 0L));
  EXPECT_EQ(at(1), std::pair(0L, 1L));
  EXPECT_EQ(at(2), std::pair(1L, 0L));
  EXPECT_EQ(at(3), std::pair(1L, 1L));
  EXPECT_EQ(at(4), std::pair(0L, 2L));
  EXPECT_EQ(at(11), std::pair(1L, 5L));
  EXPECT_EQ(at(12), std::pair(2L, 0L));
  EXPECT_EQ(at(23), std::pair(3L, 5L));
  EXPECT_EQ(grid.num_tokens(), 6);
}

TEST(PatchRows, PartsAreTheWhole) {
  CpuDevice device;
  const RgbImage image = test_picture(96, 64, 1);
  const Tensor whole = patch_rows(device, {&image, 1});
  Tensor part = empty_tensor(device, {5, kPatchRowSize});
  write_patch_rows({&image, 1}, 7, part.view());
  EXPECT_TRUE(identical_to(part.f32(), whole.f32().subspan(7 * kPatchRowSize, 5 * kPatchRowSize)));
}

TEST(PatchRows, RefusesPicturesThatAreNoGrid) {
  CpuDevice device;
  const RgbImage odd = test_picture(48, 32, 0);
  EXPECT_THROW((void)patch_rows(device, {&odd, 1}), InternalError);
  const std::vector<RgbImage> unlike = {test_picture(32, 32, 0), test_picture(32, 64, 0)};
  EXPECT_THROW((void)patch_rows(device, unlike), InternalError);
  EXPECT_THROW((void)patch_rows(device, {}), InternalError);
  RgbImage cut = test_picture(32, 32, 0);
  cut.pixels.pop_back();
  EXPECT_THROW((void)patch_rows(device, {&cut, 1}), InternalError);
  const RgbImage image = test_picture(32, 32, 0);
  Tensor part = empty_tensor(device, {2, kPatchRowSize});
  EXPECT_THROW(write_patch_rows({&image, 1}, 3, part.view()), InternalError);
}

}  // namespace
}  // namespace miniacc
