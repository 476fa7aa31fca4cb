#include "runtime/ring_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace miniacc {
namespace {

using ::testing::HasSubstr;

TEST(RingPlan, EverythingThatFitsIsResident) {
  const RingPlan plan = plan_ring(50, 100, 2, 5000).value();
  EXPECT_EQ(plan.num_resident(), 50);
  EXPECT_EQ(plan.num_slots, 0);
  EXPECT_EQ(plan.device_bytes(), 5000U);
  EXPECT_EQ(plan.bytes_per_pass(), 0U);
}

TEST(RingPlan, TheRestPassesThroughSlots) {
  // One byte short of all: 49 places, of which two are slots.
  const RingPlan plan = plan_ring(50, 100, 2, 4999).value();
  EXPECT_EQ(plan.num_resident(), 47);
  EXPECT_EQ(plan.num_slots, 2);
  EXPECT_EQ(plan.device_bytes(), 4900U);
  EXPECT_EQ(plan.bytes_per_pass(), 300U);
}

TEST(RingPlan, TheWorkedExampleOfThe24GiBCard) {
  // Spec acceleration_full.md §1.5 with h = 8 GiB: 11.7 GB beside two slots hold 30 int8 blocks.
  constexpr std::size_t kBlock = 385'600'000;
  const RingPlan plan = plan_ring(50, kBlock, 2, 11'700'000'000 + 2 * kBlock).value();
  EXPECT_EQ(plan.num_resident(), 30);
}

TEST(RingPlan, ResidentsAreSpreadEvenly) {
  for (std::int64_t places = 2; places < 50; ++places) {
    const RingPlan plan = plan_ring(50, 1, 2, static_cast<std::size_t>(places)).value();
    ASSERT_EQ(plan.num_resident(), places - 2);
    // Runs of streamed layers differ by at most one.
    std::vector<std::int64_t> runs = {0};
    for (const bool resident : plan.resident) {
      if (resident) {
        runs.push_back(0);
      } else {
        ++runs.back();
      }
    }
    runs.pop_back();  // the last run goes on with the first one of the next pass
    if (runs.size() > 1) {
      const auto [shortest, longest] = std::minmax_element(runs.begin(), runs.end());
      EXPECT_LE(*longest - *shortest, 1) << places;
    }
  }
}

TEST(RingPlan, TooLittleIsRefusedWithWhatWouldDo) {
  const auto plan = plan_ring(50, 100, 2, 199);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(plan.error().message, HasSubstr("200 bytes"));
  EXPECT_THAT(plan.error().message, HasSubstr("199"));
  EXPECT_EQ(plan_ring(50, 100, 2, 200).value().num_resident(), 0);
}

TEST(RingPlan, ALonelyLayerNeedsNoSlots) {
  EXPECT_EQ(plan_ring(1, 100, 2, 100).value().num_resident(), 1);
  EXPECT_FALSE(plan_ring(1, 100, 1, 99));
}

}  // namespace
}  // namespace miniacc
