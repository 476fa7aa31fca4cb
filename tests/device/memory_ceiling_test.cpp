#include "device/memory_ceiling.h"

#include <gtest/gtest.h>

#include <limits>

namespace miniacc {
namespace {

TEST(MemoryCeiling, CountsReservationsAtOnceAndPeaksOnlyOnConfirmation) {
  MemoryCeiling ceiling("test", 1000);
  const auto sum = ceiling.reserve(600);
  ASSERT_TRUE(sum);
  EXPECT_EQ(*sum, 600U);
  EXPECT_EQ(ceiling.in_use(), 600U);
  EXPECT_EQ(ceiling.peak(), 0U);
  ceiling.confirm(*sum);
  EXPECT_EQ(ceiling.peak(), 600U);
  ASSERT_TRUE(ceiling.reserve(400));
  ceiling.release(400);
  EXPECT_EQ(ceiling.in_use(), 600U);
  EXPECT_EQ(ceiling.peak(), 600U) << "an allocation that failed is no peak";
}

TEST(MemoryCeiling, RefusalNamesTheMemoryAndTheFigures) {
  MemoryCeiling ceiling("CUDA device 3", 1000);
  ASSERT_TRUE(ceiling.reserve(600));
  const auto refused = ceiling.reserve(401);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "CUDA device 3 buffer of 401 bytes does not fit: 600 of 1000 bytes are in use");
  EXPECT_FALSE(ceiling.reserve(std::numeric_limits<std::size_t>::max()));
  EXPECT_EQ(ceiling.in_use(), 600U);
}

TEST(MemoryCeiling, RoundsUpToTheAlignmentWithoutOverflow) {
  const MemoryCeiling ceiling("test", 1000);
  EXPECT_EQ(ceiling.rounded_size(0, 256), 256U);
  EXPECT_EQ(ceiling.rounded_size(256, 256), 256U);
  EXPECT_EQ(ceiling.rounded_size(257, 256), 512U);
  EXPECT_FALSE(ceiling.rounded_size(std::numeric_limits<std::size_t>::max(), 256));
}

}  // namespace
}  // namespace miniacc
