#include "model/video_vae/pixels.h"

#include <gtest/gtest.h>

#include "device/cpu_device.h"
#include "support/random.h"

namespace miniacc::video_vae {
namespace {

TEST(VideoVaePixels, DecoderOutputOfTheSpecBecomesItsBytes) {
  CpuDevice device;
  Tensor pixels = testing::make_tensor(device, {1, 3, 1, 1}, {0.1F, -0.2F, 1.5F});
  to_unit_range(pixels.view());
  EXPECT_NEAR(pixels.f32()[0], 0.5079, 5e-5);
  EXPECT_NEAR(pixels.f32()[1], 0.4112, 5e-5);
  EXPECT_NEAR(pixels.f32()[2], 0.7435, 5e-5);
  Tensor rgb = empty_tensor(device, {1, 1, 1, 3}, DType::kU8);
  to_rgb8(rgb.view(), pixels.view());
  const auto* bytes = rgb.view().as<std::uint8_t>();
  EXPECT_EQ(bytes[0], 130);
  EXPECT_EQ(bytes[1], 105);
  EXPECT_EQ(bytes[2], 190);
}

TEST(VideoVaePixels, NormalisedByteValuesComeBack) {
  CpuDevice device;
  // 0, 255 and 128 of every channel, spec vae.md §11.2.
  Tensor pixels = testing::make_tensor(device, {3, 3, 1, 1},
                                       {-2.1179039F, -2.0357143F, -1.8044444F, 2.2489083F,
                                        2.4285714F, 2.64F, 0.0740646F, 0.2051821F, 0.4264924F});
  to_unit_range(pixels.view());
  Tensor rgb = empty_tensor(device, {3, 1, 1, 3}, DType::kU8);
  to_rgb8(rgb.view(), pixels.view());
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(rgb.view().as<std::uint8_t>()[i], i < 3 ? 0 : i < 6 ? 255 : 128) << i;
  }
}

TEST(VideoVaePixels, ClampsAndInterleaves) {
  CpuDevice device;
  // Two frames of 1 x 2 pixels in planes; the values say frame, channel and column.
  Tensor pixels = testing::make_tensor(
      device, {2, 3, 1, 2},
      {-99.0F, 99.0F, -99.0F, 99.0F, 99.0F, -99.0F, 99.0F, 99.0F, -99.0F, -99.0F, 99.0F, -99.0F});
  to_unit_range(pixels.view());
  Tensor rgb = empty_tensor(device, {2, 1, 2, 3}, DType::kU8);
  to_rgb8(rgb.view(), pixels.view());
  const std::vector<int> wanted = {0, 0, 255, 255, 255, 0, 255, 0, 255, 255, 0, 0};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(rgb.view().as<std::uint8_t>()[i], wanted[i]) << i;
  }
}

TEST(VideoVaePixels, RoundsTiesToEven) {
  CpuDevice device;
  // 0.5 · 255 = 127.5, exactly representable: to the even 128; 0.1 · 255 = 25.5: to 26.
  const Tensor pixels = testing::make_tensor(device, {1, 3, 1, 1}, {0.5F, 0.1F, 0.3F});
  Tensor rgb = empty_tensor(device, {1, 1, 1, 3}, DType::kU8);
  to_rgb8(rgb.view(), pixels.view());
  EXPECT_EQ(rgb.view().as<std::uint8_t>()[0], 128);
  EXPECT_EQ(rgb.view().as<std::uint8_t>()[1], 26);
  EXPECT_EQ(rgb.view().as<std::uint8_t>()[2], 76);  // 76.5 in f32, tie to even
}

TEST(VideoVaePixels, CrossFadeStartsWithTheEarlierWindowAlone) {
  CpuDevice device;
  Tensor head = testing::make_tensor(device, {5, 1}, {10, 10, 10, 10, 10});
  const Tensor tail = testing::make_tensor(device, {5, 1}, {0, 0, 0, 0, 0});
  cross_fade(head.view(), tail.view());
  for (std::size_t k = 0; k < 5; ++k) {
    EXPECT_NEAR(head.f32()[k], 2.0 * static_cast<double>(k), 1e-6);
  }
}

}  // namespace
}  // namespace miniacc::video_vae
