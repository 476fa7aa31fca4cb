#include "model/video_vae/pixels.h"

#include <gtest/gtest.h>

#include <cmath>

#include "device/cpu_device.h"
#include "kernels/frames.h"
#include "support/random.h"

namespace miniacc::video_vae {
namespace {

TEST(VideoVaePixels, DecoderOutputOfTheSpecBecomesItsBytes) {
  CpuDevice device;
  OpContext ctx{device, 2};
  Tensor pixels = testing::make_tensor(device, {1, 3, 1, 1}, {0.1F, -0.2F, 1.5F});
  to_unit_range(ctx, pixels.view());
  EXPECT_NEAR(pixels.f32()[0], 0.5079, 5e-5);
  EXPECT_NEAR(pixels.f32()[1], 0.4112, 5e-5);
  EXPECT_NEAR(pixels.f32()[2], 0.7435, 5e-5);
  Tensor rgb = empty_tensor(device, {1, 1, 1, 3}, DType::kU8);
  ops::to_rgb8(ctx, rgb.view(), pixels.view());
  const auto* bytes = rgb.view().as<std::uint8_t>();
  EXPECT_EQ(bytes[0], 130);
  EXPECT_EQ(bytes[1], 105);
  EXPECT_EQ(bytes[2], 190);
}

TEST(VideoVaePixels, NormalisedByteValuesComeBack) {
  CpuDevice device;
  OpContext ctx{device, 2};
  // 0, 255 and 128 of every channel, spec vae.md §11.2.
  Tensor pixels = testing::make_tensor(device, {3, 3, 1, 1},
                                       {-2.1179039F, -2.0357143F, -1.8044444F, 2.2489083F,
                                        2.4285714F, 2.64F, 0.0740646F, 0.2051821F, 0.4264924F});
  to_unit_range(ctx, pixels.view());
  Tensor rgb = empty_tensor(device, {3, 1, 1, 3}, DType::kU8);
  ops::to_rgb8(ctx, rgb.view(), pixels.view());
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(rgb.view().as<std::uint8_t>()[i], i < 3 ? 0 : i < 6 ? 255 : 128) << i;
  }
}

TEST(VideoVaePixels, ClampsAndInterleaves) {
  CpuDevice device;
  OpContext ctx{device, 2};
  // Two frames of 1 x 2 pixels in planes; the values say frame, channel and column.
  Tensor pixels = testing::make_tensor(
      device, {2, 3, 1, 2},
      {-99.0F, 99.0F, -99.0F, 99.0F, 99.0F, -99.0F, 99.0F, 99.0F, -99.0F, -99.0F, 99.0F, -99.0F});
  to_unit_range(ctx, pixels.view());
  Tensor rgb = empty_tensor(device, {2, 1, 2, 3}, DType::kU8);
  ops::to_rgb8(ctx, rgb.view(), pixels.view());
  const std::vector<int> wanted = {0, 0, 255, 255, 255, 0, 255, 0, 255, 255, 0, 0};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(rgb.view().as<std::uint8_t>()[i], wanted[i]) << i;
  }
}

TEST(VideoVaePixels, RoundsTiesToEven) {
  CpuDevice device;
  OpContext ctx{device, 2};
  // 0.5 · 255 = 127.5, exactly representable: to the even 128; 0.1 · 255 = 25.5: to 26.
  const Tensor pixels = testing::make_tensor(device, {1, 3, 1, 1}, {0.5F, 0.1F, 0.3F});
  Tensor rgb = empty_tensor(device, {1, 1, 1, 3}, DType::kU8);
  ops::to_rgb8(ctx, rgb.view(), pixels.view());
  EXPECT_EQ(rgb.view().as<std::uint8_t>()[0], 128);
  EXPECT_EQ(rgb.view().as<std::uint8_t>()[1], 26);
  EXPECT_EQ(rgb.view().as<std::uint8_t>()[2], 76);  // 76.5 in f32, tie to even
}

TEST(VideoVaePixels, CrossFadeStartsWithTheEarlierWindowAlone) {
  CpuDevice device;
  OpContext ctx{device, 2};
  Tensor head = testing::make_tensor(device, {5, 1}, {10, 10, 10, 10, 10});
  const Tensor tail = testing::make_tensor(device, {5, 1}, {0, 0, 0, 0, 0});
  ops::cross_fade(ctx, head.view(), tail.view());
  for (std::size_t k = 0; k < 5; ++k) {
    EXPECT_NEAR(head.f32()[k], 2.0 * static_cast<double>(k), 1e-6);
  }
}

// Spec vae.md example 11.2.
TEST(VideoVaePixels, BytesBecomeTheEncodersValues) {
  CpuDevice device;
  RgbClip clip{
      .width = 3, .height = 1, .num_frames = 1, .pixels = {0, 0, 0, 255, 255, 255, 128, 128, 128}};
  Tensor pixels = empty_tensor(device, {1, 1, 3, 3});
  gather_pixels(pixels.view(), clip, 0, {});
  const std::vector<double> wanted = {-2.1179039, -2.0357143, -1.8044444, 2.2489083, 2.4285714,
                                      2.64,       0.0740646,  0.2051821,  0.4264924};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(pixels.f32()[i], wanted[i], 1e-6) << i;
  }
}

TEST(VideoVaePixels, TilesAreCutAndTheLastFrameIsRepeated) {
  CpuDevice device;
  // 2 frames of 3 x 4 pixels; every value says frame, row and column, its channel adds 1.
  RgbClip clip{.width = 4, .height = 3, .num_frames = 2, .pixels = {}};
  for (int t = 0; t < 2; ++t) {
    for (int y = 0; y < 3; ++y) {
      for (int x = 0; x < 4; ++x) {
        for (int c = 0; c < 3; ++c) {
          clip.pixels.push_back(static_cast<std::uint8_t>(100 * t + 30 * y + 5 * x + c));
        }
      }
    }
  }
  Tensor pixels = empty_tensor(device, {3, 2, 2, 3});
  gather_pixels(pixels.view(), clip, 1, {.top = 1, .left = 2});
  const auto byte = [&](std::size_t i) {
    constexpr double kMean[] = {0.485, 0.456, 0.406};
    constexpr double kStd[] = {0.229, 0.224, 0.225};
    return std::lround((static_cast<double>(pixels.f32()[i]) * kStd[i % 3] + kMean[i % 3]) * 255.0);
  };
  for (std::size_t frame = 0; frame < 3; ++frame) {
    for (std::size_t i = 0; i < 12; ++i) {
      const auto y = static_cast<long>(1 + i / 6);
      const auto x = static_cast<long>(2 + i / 3 % 2);
      EXPECT_EQ(byte(12 * frame + i), 100 + 30 * y + 5 * x + static_cast<long>(i % 3)) << i;
    }
  }
  EXPECT_THROW(gather_pixels(pixels.view(), clip, 0, {.top = 2, .left = 0}), InternalError);
  EXPECT_THROW(gather_pixels(pixels.view(), clip, 0, {.top = 0, .left = 3}), InternalError);
}

}  // namespace
}  // namespace miniacc::video_vae
