#include "model/dit/time_embedding.h"

#include <gtest/gtest.h>

#include "device/cpu_device.h"
#include "model/support/micro_weights.h"
#include "support/compare.h"
#include "support/random.h"

namespace miniacc {
namespace {

using testing::close_to;
using testing::Golden;
using testing::make_tensor;
using testing::MemoryWeights;

// Spec model.md §9, example 3.
TEST(TimeFeatures, WorkedExample) {
  CpuDevice device;
  const std::vector<float> times = {0.3F, 0.999F};
  const Tensor features = time_features(device, times, 256);
  const std::span<const float> e = features.f32();
  EXPECT_NEAR(e[0], .95533651F, 1e-7F);
  EXPECT_NEAR(e[1], .96128404F, 1e-7F);
  EXPECT_NEAR(e[2], .96644413F, 1e-7F);
  EXPECT_NEAR(e[127], 1.0F, 1e-7F);
  EXPECT_NEAR(e[128], .29552022F, 1e-7F);
  EXPECT_NEAR(e[129], .27555943F, 1e-7F);
  EXPECT_NEAR(e[130], .25687692F, 1e-7F);
  EXPECT_NEAR(e[255], 3.2238e-5F, 1e-9F);
  EXPECT_NEAR(e[256], .54114348F, 1e-7F);
  EXPECT_NEAR(e[256 + 128], .84093028F, 1e-7F);
}

// Spec model.md §9, example 4.
TEST(CurveLookup, WorkedExample) {
  CpuDevice device;
  std::vector<float> values;
  for (int i = 0; i < 5; ++i) {
    values.push_back(0.5F * static_cast<float>(i));
    values.push_back(1.0F - 0.25F * static_cast<float>(i));
  }
  const Tensor table = make_tensor(device, {5, 2}, values);
  const std::vector<float> times = {0.3F, 0.999F, 1.0F, 1.2F, -0.5F, 0.0F};
  const Tensor rows = curve_lookup(device, times, table.view());
  const std::vector<float> wanted = {.6F, .7F, 1.998F, .001F, 2, 0, 2, 0, 0, 1, 0, 1};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(rows.f32()[i], wanted[i], 3e-7F) << i;
  }
}

// The interpolation position on the released grid, read off a table whose rows are their index.
TEST(CurveLookup, PositionOnTheReleasedGrid) {
  CpuDevice device;
  std::vector<float> values(1025);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i);
  }
  const Tensor table = make_tensor(device, {1025, 1}, values);
  const std::vector<float> times = {0.3F, 0.999F, 0.027027011F, 1.0F};
  const Tensor rows = curve_lookup(device, times, table.view());
  EXPECT_NEAR(rows.f32()[0], 307.20001F, 1e-4F);
  EXPECT_NEAR(rows.f32()[1], 1022.97601F, 1e-4F);
  EXPECT_NEAR(rows.f32()[2], 27.67566F, 1e-4F);
  EXPECT_EQ(rows.f32()[3], 1024.0F);
}

TEST(CurveLookup, MatchesTheReference) {
  CpuDevice device;
  MemoryWeights weights = testing::micro_transformer_pruned();
  const Golden golden("golden/dit_curve.safetensors");
  const Tensor table = *weights.load("adaln_t_table", device);
  const Tensor rows = curve_lookup(device, golden.floats("lookup.timesteps"), table.view());
  EXPECT_TRUE(close_to(rows.f32(), golden.floats("lookup.rows"), 1e-6));
}

TEST(TimeEmbedding, MatchesTheReference) {
  CpuDevice device;
  OpContext ctx{device};
  MemoryWeights weights = testing::micro_transformer();
  const DitConfig config = *read_dit_config(weights);
  const DitIslands islands = *load_dit_islands(weights, config, device);
  const Golden golden("golden/dit.safetensors");
  for (const char* step : {"t2_4x6.step_0", "t2_4x6.step_1", "t7_6x4.step_2", "keyframes.step_0"}) {
    const std::string name = step;
    const Tensor temb = time_embedding(ctx, config, islands, golden.floats(name + ".timesteps"));
    EXPECT_TRUE(close_to(temb.f32(), golden.floats(name + ".temb"), 1e-5)) << name;
  }
}

TEST(TimeEmbedding, CurveFormTakesNoSilu) {
  CpuDevice device;
  OpContext ctx{device};
  MemoryWeights weights = testing::micro_transformer_pruned();
  const DitConfig config = *read_dit_config(weights);
  const DitIslands islands = *load_dit_islands(weights, config, device);
  const Golden golden("golden/dit_curve.safetensors");
  const Tensor input =
      adaln_input(ctx, config, islands, golden.floats("curve.keyframes.step_0.timesteps"));
  EXPECT_TRUE(close_to(input.f32(), golden.floats("curve.keyframes.step_0.temb"), 1e-6));
  const std::vector<float> times = {0.5F};
  EXPECT_THROW((void)time_embedding(ctx, config, islands, times), InternalError);
}

}  // namespace
}  // namespace miniacc
