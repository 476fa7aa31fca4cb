#include "kernels/kaiser_filter.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "core/error.h"

namespace miniacc {
namespace {

TEST(KaiserFilter, TapsAreTheReleasedModels) {
  constexpr std::array<double, 6> kHalf = {0.002028966,  0.009389464, -0.025543464,
                                           -0.057657375, 0.128572609, 0.4432098};
  const std::vector<float> filter = antialiasing_filter();
  ASSERT_EQ(filter.size(), 12U);
  for (std::size_t i = 0; i < kHalf.size(); ++i) {
    EXPECT_NEAR(filter[i], kHalf[i], 1e-8) << i;
    EXPECT_EQ(filter[i], filter[11 - i]) << i;
  }
}

TEST(KaiserFilter, SumsToOneForEveryAttenuation) {
  // Half widths that fall into each branch of Kaiser's rule.
  for (const double half_width : {0.3, 0.15, 0.005}) {
    const std::vector<float> filter = kaiser_sinc_filter(12, 0.25, half_width);
    EXPECT_NEAR(std::accumulate(filter.begin(), filter.end(), 0.0), 1.0, 1e-6);
  }
  EXPECT_NE(kaiser_sinc_filter(12, 0.25, 0.3), kaiser_sinc_filter(12, 0.25, 0.15));
  EXPECT_NE(kaiser_sinc_filter(12, 0.25, 0.15), kaiser_sinc_filter(12, 0.25, 0.005));
}

TEST(KaiserFilter, RefusesAnOddNumberOfTaps) {
  EXPECT_THROW(kaiser_sinc_filter(11, 0.25, 0.3), InternalError);
}

}  // namespace
}  // namespace miniacc
