#include "runtime/device_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace miniacc {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kLayer = 1000;

RingChoice choose(const RingRequest& request, std::size_t ceiling, std::size_t beside,
                  std::size_t others) {
  return choose_ring(request, {}, ceiling, beside, others).value();
}

TEST(ChooseRing, AllLayersStayWhereTheyFitBesideTheOthers) {
  const RingChoice choice = choose({10, kLayer, false}, 20 * kLayer, 5 * kLayer, 5 * kLayer);
  EXPECT_EQ(choice.plan.num_resident(), 10);
  EXPECT_EQ(choice.plan.num_slots, 0);
  EXPECT_FALSE(choice.others_go);
}

TEST(ChooseRing, OthersGoBeforeLayersAreStreamedMoreThanOnce) {
  const RingChoice choice = choose({10, kLayer, false}, 14 * kLayer, 5 * kLayer, 5 * kLayer);
  EXPECT_TRUE(choice.others_go);
  EXPECT_EQ(choice.plan.num_resident(), 6);
  EXPECT_EQ(choice.plan.num_slots, 3);
}

TEST(ChooseRing, AStackOfOnePassTakesSlotsAndLeavesTheOthers) {
  const RingChoice choice = choose({10, kLayer, true}, 14 * kLayer, 5 * kLayer, 5 * kLayer);
  EXPECT_FALSE(choice.others_go);
  EXPECT_EQ(choice.plan.num_resident(), 0);
  EXPECT_EQ(choice.plan.num_slots, 3);
  EXPECT_TRUE(choose({10, kLayer, true}, 10 * kLayer, 5 * kLayer, 5 * kLayer).others_go);
}

TEST(ChooseRing, TwoSlotsAreEnough) {
  EXPECT_EQ(choose({10, kLayer, false}, 7 * kLayer, 5 * kLayer, 0).plan.num_slots, 2);
  const auto none = choose_ring({10, kLayer, false}, {}, 6 * kLayer, 5 * kLayer, 0);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kOutOfMemory);
}

StagePlan stage(const char* name, std::int64_t layers, std::size_t layer_bytes, std::size_t beside,
                std::size_t workspace) {
  StagePlan plan;
  plan.name = name;
  plan.num_layers = layers;
  plan.layer_bytes = layer_bytes;
  plan.beside_layers_bytes = beside;
  plan.activation_bytes = beside;
  plan.workspace_bytes = workspace;
  return plan;
}

TEST(DevicePlan, StaysWithinEveryCeilingAndTheSmallestOneIsTheSmallest) {
  std::mt19937 random(3);
  const auto draw = [&](std::size_t most) { return 1 + random() % most; };
  for (int i = 0; i < 200; ++i) {
    const std::vector<StagePlan> stages = {
        stage(kTextStage, 50, draw(500000), draw(100000), draw(100000)),
        stage(kDenoiseStage, 50, draw(400000), draw(9000000), draw(3000000)),
        stage(kAudioStage, 0, 0, draw(1000000), draw(1000)),
        stage(kVideoStage, 24, draw(100000), draw(2000000), draw(300000))};
    const std::size_t side = draw(100000);
    const std::size_t smallest = smallest_ceiling(stages, side);
    for (const std::size_t ceiling : {smallest, smallest * 2, smallest * 10}) {
      const auto plan = plan_device(stages, side, {.pinned_bytes = 1 << 24}, ceiling);
      ASSERT_TRUE(plan) << plan.error().message;
      EXPECT_LE(plan->peak_bytes(), ceiling);
      ASSERT_EQ(plan->stages.size(), 4U);
    }
    const auto refused = plan_device(stages, side, {.pinned_bytes = 0}, smallest * 98 / 100);
    ASSERT_FALSE(refused) << i;
    EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
    EXPECT_THAT(refused.error().message, HasSubstr("of device memory"));
  }
}

}  // namespace
}  // namespace miniacc
