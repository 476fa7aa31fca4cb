#include "model/dit/modulation.h"

#include <gtest/gtest.h>

#include <limits>

#include "device/cpu_device.h"
#include "model/dit/dit.h"
#include "model/dit/time_embedding.h"
#include "model/support/micro_weights.h"
#include "support/compare.h"

namespace miniacc {
namespace {

using testing::identical_to;
using testing::MemoryWeights;

std::span<const float> values(ConstTensorView view) {
  return {view.f32(), static_cast<std::size_t>(view.num_elements())};
}

std::vector<float> many_times() {
  std::vector<float> times;
  for (int i = 0; i < 37; ++i) {
    times.push_back(static_cast<float>(i) / 37.0F);
  }
  return times;
}

void expect_same_alone_and_together(MemoryWeights weights, Precision precision) {
  CpuDevice device;
  OpContext ctx{device};
  Dit dit = *Dit::open(weights, device, precision, 0);
  ModulationCache together;
  ASSERT_TRUE(dit.prepare_modulation(ctx, many_times(), together));
  EXPECT_EQ(together.num_reads(), dit.config().num_layers);
  for (const float time : many_times()) {
    ModulationCache alone;
    ASSERT_TRUE(dit.prepare_modulation(ctx, {&time, 1}, alone));
    for (std::int64_t layer = 0; layer < dit.config().num_layers; ++layer) {
      ASSERT_TRUE(
          identical_to(values(together.block(time, layer)), values(alone.block(time, layer))))
          << "time " << time << " layer " << layer;
    }
    ASSERT_TRUE(identical_to(values(together.final_layer(time)), values(alone.final_layer(time))));
  }
}

TEST(ModulationCache, ATimestepIsTheSameAloneAndInASchedule) {
  expect_same_alone_and_together(testing::micro_transformer(), Precision::kF32);
  expect_same_alone_and_together(testing::micro_transformer(), Precision::kBF16);
  expect_same_alone_and_together(testing::micro_transformer_pruned(), Precision::kBF16);
}

TEST(ModulationCache, ReadsProjectionsOnlyForMissingTimes) {
  CpuDevice device;
  OpContext ctx{device};
  MemoryWeights weights = testing::micro_transformer();
  Dit dit = *Dit::open(weights, device, Precision::kF32, 0);
  ModulationCache cache;
  const std::vector<float> first = {0.0F, 0.5F, 0.5F};
  ASSERT_TRUE(dit.prepare_modulation(ctx, first, cache));
  EXPECT_EQ(weights.reads["blocks.2.adaln_proj.linear.weight"], 1);
  ASSERT_TRUE(dit.prepare_modulation(ctx, first, cache));
  EXPECT_EQ(weights.reads["blocks.2.adaln_proj.linear.weight"], 1);
  const std::vector<float> second = {0.5F, 0.75F};
  ASSERT_TRUE(dit.prepare_modulation(ctx, second, cache));
  EXPECT_EQ(weights.reads["blocks.2.adaln_proj.linear.weight"], 2);
  EXPECT_EQ(cache.size_bytes(), 3 * sizeof(float) * (3 * 864 + 96));
  EXPECT_THROW((void)cache.block(0.1F, 0), InternalError);
  cache.clear();
  EXPECT_FALSE(cache.has(0.5F));
}

// Spec model.md §3.5 and §9, example 14: modality slowest, then the vector, then the channel. The
// projection's bias is made its own index and its weight zero, so the value tells the place.
TEST(ModulationCache, RowLayout) {
  CpuDevice device;
  OpContext ctx{device};
  MemoryWeights weights = testing::micro_transformer();
  std::ranges::fill(weights.values("blocks.1.adaln_proj.linear.weight"), 0.0F);
  std::vector<float>& bias = weights.values("blocks.1.adaln_proj.linear.bias");
  for (std::size_t i = 0; i < bias.size(); ++i) {
    bias[i] = static_cast<float>(i);
  }
  Dit dit = *Dit::open(weights, device, Precision::kF32, 0);
  ModulationCache cache;
  const float time = 0.3F;
  ASSERT_TRUE(dit.prepare_modulation(ctx, {&time, 1}, cache));
  const ConstTensorView table = cache.block(time, 1);
  ASSERT_EQ(table.shape, Shape({3, 6 * 48}));
  const float* entry = table.narrow(0, 1, 1).narrow(1, 4 * 48 + 7, 1).f32();
  EXPECT_EQ(*entry, 1 * 6 * 48 + 4 * 48 + 7);
}

TEST(ModulationCache, StaysAsItWasOnAnError) {
  CpuDevice device;
  OpContext ctx{device};
  MemoryWeights weights = testing::micro_transformer();
  Dit dit = *Dit::open(weights, device, Precision::kF32, 0);
  weights.values("blocks.2.adaln_proj.linear.weight")[5] = std::numeric_limits<float>::quiet_NaN();
  ModulationCache cache;
  const float time = 0.3F;
  const Status status = dit.prepare_modulation(ctx, {&time, 1}, cache);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidInput);
  EXPECT_FALSE(cache.has(time));
}

}  // namespace
}  // namespace miniacc
