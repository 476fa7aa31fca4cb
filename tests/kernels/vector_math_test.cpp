#include "kernels/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "support/random.h"

namespace miniacc::ops::cpu {
namespace {

// Measured: 1.1e-7 with and without fused multiply-add.
TEST(VectorMath, ExpIsWithinTwoUnitsInTheLastPlace) {
  double worst = 0.0;
  for (double x = -87.3; x < 88.7; x += 0.00037) {
    const auto argument = static_cast<float>(x);
    const double exact = std::exp(static_cast<double>(argument));
    worst = std::max(worst, std::fabs(vector_exp(argument) - exact) / exact);
  }
  EXPECT_LT(worst, 2 * 1.2e-7);
  RecordProperty("exp", std::to_string(worst * 1e9));
}

TEST(VectorMath, ExpAtItsEdges) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(vector_exp(0.0F), 1.0F);
  EXPECT_EQ(vector_exp(-inf), 0.0F);
  EXPECT_EQ(vector_exp(-200.0F), 0.0F);
  EXPECT_EQ(vector_exp(inf), inf);
  EXPECT_EQ(vector_exp(89.0F), inf);
  EXPECT_TRUE(std::isnan(vector_exp(std::nanf(""))));
  for (const float x : {-88.0F, -95.0F, -103.0F}) {  // subnormal results
    EXPECT_NEAR(vector_exp(x), std::exp(static_cast<double>(x)), 1.5e-45);
  }
}

TEST(VectorMath, SinSquaredErrsByLessThan3e7) {
  double worst = 0.0;
  for (double x = -25000.0; x <= 25000.0; x += 0.0173) {
    const auto argument = static_cast<float>(x);
    const double exact = std::pow(std::sin(static_cast<double>(argument)), 2);
    worst = std::max(worst, std::fabs(vector_sin_squared(argument) - exact));
  }
  EXPECT_LT(worst, 3e-7);  // measured 2.7e-7
  RecordProperty("sin_squared", std::to_string(worst * 1e9));
  EXPECT_EQ(vector_sin_squared(0.0F), 0.0F);
  EXPECT_TRUE(std::isnan(vector_sin_squared(std::nanf(""))));
}

TEST(VectorMath, SoftmaxNumeratorSumsToOneAndClearsTheRest) {
  for (const std::int64_t size : {1, 2, 15, 16, 17, 1023, 1025, 20001}) {
    auto row = testing::random_normal(size + 3, 1);
    for (float& value : row) {
      value *= 30.0F;
    }
    const auto before = row;
    const float inverse = softmax_numerator(row.data(), size, size + 3, 0.5F);
    double peak = -1e30;
    double sum = 0.0;
    for (std::int64_t i = 0; i < size; ++i) {
      peak = std::max(peak, static_cast<double>(before[static_cast<std::size_t>(i)]));
    }
    for (std::int64_t i = 0; i < size; ++i) {
      sum += std::exp((static_cast<double>(before[static_cast<std::size_t>(i)]) - peak) * 0.5);
    }
    EXPECT_NEAR(inverse * sum, 1.0, 1e-6) << size;
    for (std::int64_t i = 0; i < size; ++i) {
      const auto at = static_cast<std::size_t>(i);
      ASSERT_NEAR(row[at], std::exp((static_cast<double>(before[at]) - peak) * 0.5), 1e-6);
    }
    for (std::int64_t i = size; i < size + 3; ++i) {
      EXPECT_EQ(row[static_cast<std::size_t>(i)], 0.0F);
    }
  }
}

TEST(VectorMath, SoftmaxNumeratorPassesNan) {
  std::vector<float> row(40, 1.0F);
  row[33] = std::nanf("");
  EXPECT_TRUE(std::isnan(softmax_numerator(row.data(), 40, 40, 1.0F)));
}

TEST(VectorMath, MaxMagnitudeSeesSignNanAndInfinity) {
  std::vector<float> row(37, -1.0F);
  row[35] = -7.5F;
  EXPECT_EQ(max_magnitude(row.data(), 37), 7.5F);
  EXPECT_EQ(max_magnitude(row.data(), 0), 0.0F);
  row[3] = -std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(max_magnitude(row.data(), 37)));
  row[20] = std::nanf("");
  EXPECT_TRUE(std::isnan(max_magnitude(row.data(), 37)));
}

}  // namespace
}  // namespace miniacc::ops::cpu
