#include "model/dit/rope_table.h"

#include <gtest/gtest.h>

#include <map>

#include "device/cpu_device.h"
#include "kernels/rope.h"
#include "model/support/micro_weights.h"
#include "support/compare.h"
#include "support/random.h"

namespace miniacc {
namespace {

using testing::close_to;
using testing::Golden;
using testing::make_tensor;

TEST(RopeTable, MatchesTheReference) {
  CpuDevice device;
  const Golden golden("golden/dit.safetensors");
  const RopeTable table =
      make_rope_table(device, golden.doubles("rope.position_ids"), rope_inv_freq(4, 10000.0));
  // The reference repeats the frequencies for the second channel of each pair.
  const auto twice = [&](const Tensor& half) {
    std::vector<float> values;
    const std::int64_t width = half.shape()[1];
    for (std::int64_t row = 0; row < half.shape()[0]; ++row) {
      const auto first = half.f32().begin() + row * width;
      values.insert(values.end(), first, first + width);
      values.insert(values.end(), first, first + width);
    }
    return values;
  };
  EXPECT_TRUE(close_to(twice(table.cos), golden.floats("rope.cos"), 1e-6));
  EXPECT_TRUE(close_to(twice(table.sin), golden.floats("rope.sin"), 1e-6));
}

// Spec model.md §9, example 11, through the op that consumes the table.
TEST(RopeTable, RotatesTheWorkedExample) {
  CpuDevice device;
  OpContext ctx{device};
  const std::vector<double> positions = {5.0, 1.5, -2.0};
  const RopeTable table = make_rope_table(device, positions, rope_inv_freq(16, 10000.0));
  std::vector<float> values(128);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i + 1) / 100.0F;
  }
  Tensor x = make_tensor(device, {1, 1, 128}, values);
  ops::apply_rope(ctx, x.view(), table.cos.view(), table.sin.view());
  const std::map<std::size_t, float> wanted = {{0, .47271F},   {1, -.180889F},  {16, -.636346F},
                                               {32, .599202F}, {47, .480341F},  {48, .129405F},
                                               {64, .215553F}, {80, -.637147F}, {95, .959829F},
                                               {96, .97F},     {127, 1.28F}};
  for (const auto& [channel, value] : wanted) {
    EXPECT_NEAR(x.f32()[channel], value, 1e-6F) << channel;
  }
}

TEST(RopeTable, FrequenciesOfTheSpec) {
  const std::vector<float> inv_freq = rope_inv_freq(16, 10000.0);
  EXPECT_FLOAT_EQ(inv_freq[0], 1.0F);
  EXPECT_FLOAT_EQ(inv_freq[1], 0.5623413F);
  EXPECT_FLOAT_EQ(inv_freq[4], 0.1F);
  EXPECT_FLOAT_EQ(inv_freq[15], 1.778279e-4F);
}

}  // namespace
}  // namespace miniacc
