#include "model/text_encoder/mrope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "device/cpu_device.h"

namespace miniacc {
namespace {

using ::testing::ElementsAre;

constexpr std::array<std::int64_t, 3> kSection = {24, 20, 20};
constexpr double kTheta = 5'000'000.0;

// Spec text_encoder.md §10.2.
TEST(Mrope, AnglesOfTheWorkedExample) {
  CpuDevice device;
  const std::vector<MropePosition> positions = {{10, 11, 13}, {7, 7, 7}};
  const MropeTable table = make_mrope_table(device, positions, kSection, kTheta);
  struct Row {
    std::size_t i;
    float cos;
    float sin;
  };
  const std::vector<Row> rows = {
      {0, -0.839071529F, -0.544021111F},  {1, -0.710457540F, 0.703740069F},
      {2, -0.173017172F, 0.984918808F},   {3, 0.139876947F, -0.990168895F},
      {30, 0.999973777F, 0.00724192486F}, {31, 0.999980406F, 0.00626002767F},
      {32, 0.999983100F, 0.00581374399F}, {58, 1.0F, 9.34224212e-6F},
      {59, 1.0F, 8.67621648e-6F},         {60, 1.0F, 5.24463925e-6F},
      {63, 1.0F, 2.54507979e-6F}};
  for (const Row& row : rows) {
    EXPECT_NEAR(table.cos.f32()[row.i], row.cos, 1e-6F) << row.i;
    EXPECT_NEAR(table.sin.f32()[row.i], row.sin,
                1e-6F * std::max(1e-3F, std::fabs(row.sin)) + 5e-7F)
        << row.i;
  }
  // The smallest angles, relatively: they tell the three axes apart.
  EXPECT_NEAR(table.sin.f32()[58] / 9.34224212e-6F, 1.0F, 1e-5F);
  EXPECT_NEAR(table.sin.f32()[59] / 8.67621648e-6F, 1.0F, 1e-5F);
  EXPECT_NEAR(table.sin.f32()[60] / 5.24463925e-6F, 1.0F, 1e-5F);
  EXPECT_NEAR(table.sin.f32()[63] / 2.54507979e-6F, 1.0F, 1e-5F);
  const std::span<const float> cosines = table.cos.f32().subspan(64);
  const std::span<const float> sines = table.sin.f32().subspan(64);
  EXPECT_NEAR(cosines[0], 0.753902254F, 1e-6F);
  EXPECT_NEAR(sines[0], 0.656986599F, 1e-6F);
  EXPECT_NEAR(cosines[1], 0.709240933F, 1e-6F);
  EXPECT_NEAR(sines[1], -0.704966169F, 1e-6F);
  EXPECT_NEAR(cosines[2], -0.379899523F, 1e-6F);
  EXPECT_NEAR(sines[2], -0.925027758F, 1e-6F);
  EXPECT_NEAR(cosines[3], -0.967583631F, 1e-6F);
  EXPECT_NEAR(sines[3], -0.252550819F, 1e-6F);
}

TEST(Mrope, AxesTakeTurnsAndTimeTakesTheRest) {
  EXPECT_THAT(mrope_axes({4, 2, 2}), ElementsAre(0, 1, 2, 0, 1, 2, 0, 0));
  const std::vector<int> axes = mrope_axes(kSection);
  ASSERT_EQ(axes.size(), 64U);
  EXPECT_EQ(std::ranges::count(axes, 0), 24);
  EXPECT_EQ(std::ranges::count(axes, 1), 20);
  EXPECT_EQ(std::ranges::count(axes, 2), 20);
  EXPECT_EQ(axes[58], 1);
  EXPECT_EQ(axes[59], 2);
  EXPECT_THAT(std::vector<int>(axes.begin() + 60, axes.end()), ElementsAre(0, 0, 0, 0));
}

// Spec text_encoder.md §10.3.
TEST(Mrope, PositionsOfTheWorkedExample) {
  const std::vector<PresentationRun> runs = {
      {.num_text_rows = 7}, {.grid_height = 2, .grid_width = 3}, {.num_text_rows = 4}};
  const std::vector<MropePosition> positions = mrope_positions(runs);
  ASSERT_EQ(positions.size(), 17U);
  const std::array<std::array<std::int64_t, 17>, 3> wanted = {
      {{0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7, 7, 7, 10, 11, 12, 13},
       {0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 8, 8, 8, 10, 11, 12, 13},
       {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 7, 8, 9, 10, 11, 12, 13}}};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    for (std::size_t row = 0; row < positions.size(); ++row) {
      EXPECT_EQ(positions[row].at(axis), wanted.at(axis).at(row)) << axis << ", " << row;
    }
  }
}

TEST(Mrope, PositionsOfRealImages) {
  const std::vector<PresentationRun> square = {
      {.num_text_rows = 7}, {.grid_height = 8, .grid_width = 8}, {.num_text_rows = 2}};
  const std::vector<MropePosition> positions = mrope_positions(square);
  ASSERT_EQ(positions.size(), 7U + 64U + 2U);
  EXPECT_THAT(positions[7], ElementsAre(7, 7, 7));
  EXPECT_THAT(positions[70], ElementsAre(7, 14, 14));
  EXPECT_THAT(positions[71], ElementsAre(15, 15, 15));
  EXPECT_THAT(positions[72], ElementsAre(16, 16, 16));
  const std::vector<PresentationRun> keyframe = {
      {.num_text_rows = 7}, {.grid_height = 24, .grid_width = 42}, {.num_text_rows = 1}};
  EXPECT_THAT(mrope_positions(keyframe).at(7 + 1008), ElementsAre(49, 49, 49));
}

TEST(Mrope, RefusesARunOfTwoKinds) {
  const PresentationRun both = {.num_text_rows = 1, .grid_height = 2, .grid_width = 2};
  EXPECT_THROW((void)mrope_positions({&both, 1}), InternalError);
  const PresentationRun flat = {.grid_height = 2};
  EXPECT_THROW((void)mrope_positions({&flat, 1}), InternalError);
}

}  // namespace
}  // namespace miniacc
