#include "model/video_vae/rope_table.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "device/cpu_device.h"
#include "kernels/rope.h"
#include "support/random.h"

namespace miniacc::video_vae {
namespace {

constexpr TileShape kReleasedTile{.t = 7, .h = 16, .w = 16};

TEST(VideoVaeRope, CoordinatesAreCellCentres) {
  EXPECT_NEAR(axis_coordinate(0, 7), -0.857143, 1e-6);
  EXPECT_NEAR(axis_coordinate(3, 7), 0.0, 1e-12);
  EXPECT_NEAR(axis_coordinate(6, 7), 0.857143, 1e-6);
  EXPECT_NEAR(axis_coordinate(0, 16), -0.9375, 1e-12);
  EXPECT_NEAR(axis_coordinate(8, 16), 0.0625, 1e-12);
  EXPECT_NEAR(axis_coordinate(15, 16), 0.9375, 1e-12);
  EXPECT_EQ(axis_coordinate(0, 1), 0.0);
}

TEST(VideoVaeRope, AnglesOfTheSpecsToken) {
  CpuDevice device;
  const RopeTable table = make_rope_table({}, kReleasedTile, device);
  constexpr std::array<double, 24> kAngles = {
      -5.385587, -3.028538, -1.703072, -0.957708, -0.538559, -0.302854, -0.170307, -0.095771,
      -3.534292, -1.987478, -1.117641, -0.628496, -0.353429, -0.198748, -0.111764, -0.062850,
      5.890486,  3.312464,  1.862735,  1.047493,  0.589049,  0.331246,  0.186274,  0.104749};
  constexpr std::size_t kToken = 3 * 16 + 15;  // (0, 3, 15) is token 63
  for (std::size_t j = 0; j < kAngles.size(); ++j) {
    EXPECT_NEAR(table.cos.f32()[kToken * 24 + j], std::cos(kAngles[j]), 1e-6) << j;
    EXPECT_NEAR(table.sin.f32()[kToken * 24 + j], std::sin(kAngles[j]), 1e-6) << j;
  }
}

TEST(VideoVaeRope, RotatesHalvesAndLeavesTheRestAndTheSuffix) {
  CpuDevice device;
  OpContext ctx{device};
  const RopeTable table = make_rope_table({}, kReleasedTile, device);
  const std::int64_t rows = kReleasedTile.num_tokens() + 5;
  ASSERT_EQ(table.cos.shape(), Shape({rows, 24}));
  std::vector<float> values(static_cast<std::size_t>(rows * 64), 3.0F);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t j = 0; j < 24; ++j) {
      values[static_cast<std::size_t>(row * 64 + j)] = 1.0F;
      values[static_cast<std::size_t>(row * 64 + j + 24)] = 2.0F;
    }
  }
  Tensor x = testing::make_tensor(device, {rows, 1, 64}, values);
  ops::apply_rope(ctx, x.view(), table.cos.view(), table.sin.view());
  const float* token = x.f32().data() + 63 * 64;
  EXPECT_NEAR(token[0], -0.940173, 1e-5);
  EXPECT_NEAR(token[24], 2.028811, 1e-5);
  EXPECT_NEAR(token[9], 1.424145, 1e-5);
  EXPECT_NEAR(token[33], -1.723894, 1e-5);
  EXPECT_NEAR(token[23], 0.785403, 1e-5);
  EXPECT_NEAR(token[47], 2.093595, 1e-5);
  EXPECT_EQ(token[48], 3.0F);
  EXPECT_EQ(token[63], 3.0F);
  for (std::int64_t row = rows - 5; row < rows; ++row) {
    EXPECT_EQ(x.f32()[static_cast<std::size_t>(row * 64)], 1.0F);
    EXPECT_EQ(x.f32()[static_cast<std::size_t>(row * 64 + 24)], 2.0F);
  }
}

}  // namespace
}  // namespace miniacc::video_vae
