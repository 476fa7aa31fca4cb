#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace miniacc::testing {

/// How far an op may be from its double-precision reference.
///   relative  ‖out - ref‖ / ‖ref‖
///   worst     max |out - ref| / max |ref|
/// One row an op and arithmetic. A bound is four times the largest error measured over all
/// tests of the row (twice, where rounding to bf16 or i8 dominates): AVX-512, AVX2 and baseline
/// code differ in the last bits. It is never loosened to make a test pass. Measure: kernels_tests
/// --gtest_output=xml:FILE, the largest property "<op>/<arithmetic>" in FILE.
struct Tolerance {
  std::string_view op;
  std::string_view arithmetic;
  double relative;
  double worst;
  double measured_relative;
  double measured_worst;
};

// A table, hence:
// clang-format off
inline constexpr std::array kTolerances = {
    //        op, arithmetic                        relative, worst   measured: relative, worst
    Tolerance{"linear", "f32",                      3e-6, 5e-6, 6.4e-07, 1.0e-06},
    // against operands rounded to bf16
    Tolerance{"linear", "bf16",                     3e-6, 7e-6, 5.7e-07, 1.5e-06},
    Tolerance{"linear", "bf16_rounding",            6e-3, 7e-3, 2.7e-03, 3.4e-03},  // against the f32 operands
    // against operands that i8 holds exactly
    Tolerance{"linear", "i8",                       2e-7, 4e-7, 3.8e-08, 8.2e-08},
    Tolerance{"linear", "i8_rounding",              3e-2, 3e-2, 1.1e-02, 1.3e-02},  // against the f32 operands
    // an outlier of 30 in every row
    Tolerance{"linear", "i8_rotated",               3e-2, 3e-2, 1.0e-02, 1.1e-02},
    Tolerance{"add_low_rank", "f32",                3e-6, 3e-6, 5.9e-07, 5.6e-07},
    Tolerance{"add_low_rank", "bf16",               6e-3, 7e-3, 2.6e-03, 3.3e-03},
    Tolerance{"rotate_rows", "f32",                 4e-7, 5e-7, 8.1e-08, 1.2e-07},
    Tolerance{"rms_norm", "f32",                    2e-7, 4e-7, 4.9e-08, 9.1e-08},
    Tolerance{"modulated_rms_norm", "f32",          3e-7, 6e-7, 5.5e-08, 1.5e-07},
    Tolerance{"layer_norm", "f32",                  2e-7, 4e-7, 3.8e-08, 8.4e-08},
    Tolerance{"silu", "f32",                        3e-7, 4e-7, 6.8e-08, 8.3e-08},
    Tolerance{"silu_mul", "f32",                    4e-7, 4e-7, 9.3e-08, 9.3e-08},
    Tolerance{"gelu", "exact",                      1.4e-7, 1.5e-7, 3.4e-08, 3.7e-08},
    Tolerance{"gelu", "tanh",                       3.5e-7, 3.5e-7, 8.6e-08, 8.6e-08},
    Tolerance{"gated_add", "f32",                   2e-7, 3e-7, 3.4e-08, 5.4e-08},
    Tolerance{"apply_rope", "f32",                  2e-7, 4e-7, 4.2e-08, 8.9e-08},
    Tolerance{"attention", "f32",                   2e-6, 4e-6, 4.6e-07, 7.8e-07},
    // scores of several hundred: their f32 rounding of 1e-5 passes through exp
    Tolerance{"attention", "f32_peaked",            2e-5, 6e-5, 3.0e-06, 1.4e-05},
    // against operands rounded to bf16
    Tolerance{"attention", "bf16",                  8e-3, 9e-3, 3.9e-03, 4.3e-03},
    // 8-bit q and k, f16 numerators and values
    Tolerance{"attention", "i8",                    2e-2, 2.6e-2, 1.0e-02, 1.3e-02},
    Tolerance{"attention", "i8_outliers",           2.6e-2, 2.5e-2, 1.3e-02, 1.3e-02},
    // against the CPU's 8-bit attention
    Tolerance{"attention", "i8_backends",           1e-3, 1.2e-3, 2.6e-04, 3.0e-04},
    Tolerance{"attention", "e4m3",                  6e-2, 8e-2, 3.9e-02, 5.0e-02},
    Tolerance{"attention", "e4m3_outliers",         6e-2, 7e-2, 3.7e-02, 4.5e-02},
    Tolerance{"attention", "e4m3_long",             8e-2, 8e-2, 0.0, 0.0},
    Tolerance{"attention", "e4m3_sums",             2e-3, 4e-3, 0.0, 0.0},
    Tolerance{"attention", "e4m3_backends",         4e-3, 7e-2, 0.0, 1.2e-02},
    Tolerance{"conv1d", "f32",                      2e-6, 2e-6, 2.8e-07, 4.7e-07},
    Tolerance{"conv_transpose1d", "f32",            4e-7, 9e-7, 9.6e-08, 2.2e-07},
    Tolerance{"conv3d", "f32",                      3e-6, 5e-6, 7.3e-07, 1.3e-06},
    Tolerance{"conv3d", "normalized",               1e-6, 3e-6, 2.9e-07, 7.0e-07},
    Tolerance{"group_norm", "f32",                  2e-7, 3e-7, 5.2e-08, 7.6e-08},
    Tolerance{"snake", "f32",                       3e-7, 4e-7, 7.5e-08, 8.4e-08},
    Tolerance{"antialiased_snake_beta", "f32",      6e-7, 1e-6, 1.3e-07, 2.3e-07},
};
// clang-format on

inline const Tolerance& tolerance(std::string_view op, std::string_view arithmetic = "f32") {
  const auto* row = std::find_if(
      kTolerances.begin(), kTolerances.end(),
      [&](const Tolerance& entry) { return entry.op == op && entry.arithmetic == arithmetic; });
  if (row == kTolerances.end()) {
    throw std::logic_error("no tolerance for " + std::string(op));
  }
  return *row;
}

/// Fails unless sizes agree, every value is finite and both errors are within the bounds.
inline void expect_close(std::span<const float> out, std::span<const double> reference,
                         const Tolerance& bound) {
  ASSERT_EQ(out.size(), reference.size());
  double difference = 0.0;
  double norm = 0.0;
  double worst = 0.0;
  double largest = 0.0;
  std::size_t worst_at = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    ASSERT_TRUE(std::isfinite(out[i])) << "value " << i << " is " << out[i];
    const double delta = std::fabs(static_cast<double>(out[i]) - reference[i]);
    difference += delta * delta;
    norm += reference[i] * reference[i];
    largest = std::max(largest, std::fabs(reference[i]));
    if (delta > worst) {
      worst = delta;
      worst_at = i;
    }
  }
  // A zero reference leaves no scale: then the output must be zero as well.
  const double relative = norm > 0.0 ? std::sqrt(difference / norm) : std::sqrt(difference);
  const double worst_relative = largest > 0.0 ? worst / largest : worst;
  const std::string key = std::string(bound.op) + "/" + std::string(bound.arithmetic);
  static std::map<std::string, std::pair<double, double>> largest_so_far;
  auto& [largest_relative, largest_worst] = largest_so_far[key];
  largest_relative = std::max(largest_relative, relative);
  largest_worst = std::max(largest_worst, worst_relative);
  std::ostringstream measured;
  measured << largest_relative << ", " << largest_worst;
  ::testing::Test::RecordProperty(key, measured.str());
  EXPECT_LE(relative, bound.relative) << key << ": relative error";
  EXPECT_LE(worst_relative, bound.worst)
      << key << ": worst element " << worst_at << " of " << out.size() << " is " << out[worst_at]
      << " instead of " << reference[worst_at];
}

}  // namespace miniacc::testing
