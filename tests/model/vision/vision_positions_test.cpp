#include "model/vision/vision_positions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "device/cpu_device.h"
#include "model/support/micro_weights.h"
#include "support/compare.h"

namespace miniacc {
namespace {

using testing::close_to;
using testing::Golden;

const VisionGrid kGrids[] = {{4, 6}, {2, 8}, {10, 6}, {2, 2}};

std::string name_of(const VisionGrid& grid) {
  return std::to_string(grid.height) + "x" + std::to_string(grid.width);
}

// Float arithmetic on both sides.
TEST(VisionPositions, InterpolatedTableMatchesTheReference) {
  CpuDevice device;
  const Golden golden("golden/vision.safetensors");
  testing::MemoryWeights weights = testing::micro_text_encoder();
  const Tensor table = *weights.load("visual.pos_embed.weight", device);
  for (const VisionGrid& grid : kGrids) {
    Tensor x = empty_tensor(device, {grid.num_patches(), table.shape()[1]});
    std::ranges::fill(x.f32(), 0.0F);
    add_vision_positions(x.view(), table.view(), grid);
    EXPECT_TRUE(close_to(x.f32(), golden.floats("positions." + name_of(grid)), 5e-7))
        << name_of(grid);
  }
}

// On the table's own grid nothing is interpolated; what is there already is kept.
TEST(VisionPositions, CornersMeetCorners) {
  CpuDevice device;
  Tensor table = empty_tensor(device, {16, 1});
  for (std::size_t i = 0; i < 16; ++i) {
    table.f32()[i] = static_cast<float>(i);
  }
  Tensor same = empty_tensor(device, {16, 1});
  std::ranges::fill(same.f32(), 100.0F);
  add_vision_positions(same.view(), table.view(), {4, 4});
  EXPECT_EQ(same.f32()[0], 100.0F);
  EXPECT_EQ(same.f32()[3], 105.0F);   // patch (1, 1)
  EXPECT_EQ(same.f32()[15], 115.0F);  // patch (3, 3)
  Tensor small = empty_tensor(device, {4, 1});
  std::ranges::fill(small.f32(), 0.0F);
  add_vision_positions(small.view(), table.view(), {2, 2});
  EXPECT_EQ(small.f32()[0], 0.0F);
  EXPECT_EQ(small.f32()[1], 3.0F);
  EXPECT_EQ(small.f32()[2], 12.0F);
  EXPECT_EQ(small.f32()[3], 15.0F);
}

// Float arithmetic on both sides.
TEST(VisionRope, MatchesTheReference) {
  CpuDevice device;
  const Golden golden("golden/vision.safetensors");
  for (const VisionGrid& grid : kGrids) {
    const VisionRope rope = make_vision_rope(device, grid, 8);
    EXPECT_TRUE(close_to(rope.cos.f32(), golden.floats("rope." + name_of(grid) + ".cos"), 5e-7));
    EXPECT_TRUE(close_to(rope.sin.f32(), golden.floats("rope." + name_of(grid) + ".sin"), 5e-7));
  }
}

// Spec text_encoder.md §10.2, heads of 72: frequencies 0, 1, 2, 9 and 17. Row 3 is patch (1, 1).
TEST(VisionRope, FrequenciesOfTheReleasedModel) {
  CpuDevice device;
  const VisionRope rope = make_vision_rope(device, {2, 2}, 72);
  ASSERT_EQ(rope.sin.shape(), Shape({4, 36}));
  const auto sine = rope.sin.f32().subspan(3 * std::size_t{36}, 36);
  for (const std::size_t half : {0U, 18U}) {
    EXPECT_NEAR(sine[half], std::sin(1.0), 1e-7);
    EXPECT_NEAR(sine[half + 1], std::sin(0.599484250), 1e-7);
    EXPECT_NEAR(sine[half + 2], std::sin(0.359381366), 1e-7);
    EXPECT_NEAR(sine[half + 9], std::sin(0.01), 1e-9);
    EXPECT_NEAR(sine[half + 17], std::sin(1.66810054e-4), 1e-11);
  }
  // Row 1 is patch (0, 1): its rows do not turn, its columns do.
  EXPECT_EQ(rope.sin.f32()[36], 0.0F);
  EXPECT_NEAR(rope.sin.f32()[36 + 18], std::sin(1.0), 1e-7);
}

}  // namespace
}  // namespace miniacc
