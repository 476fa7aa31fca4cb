#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace miniacc::testing {

/// How far an op may be from its double-precision reference.
///   relative  ‖out - ref‖ / ‖ref‖
///   worst     max |out - ref| / max |ref|
/// One row an op and arithmetic. A bound is about four times the largest error measured over all
/// tests of the row (AVX-512, AVX2 and baseline code differ in the last bit); it is never loosened
/// to make a test pass. Measure: kernels_tests --gtest_output=xml, property "<op>/<arithmetic>".
struct Tolerance {
  std::string_view op;
  std::string_view arithmetic;
  double relative;
  double worst;
  double measured_relative;
  double measured_worst;
};

inline constexpr std::array kTolerances = {
    //        op               arithmetic    relative worst   measured: relative, worst
    Tolerance{"linear", "f32", 1e-6, 2e-6, 0, 0},
    Tolerance{"linear", "bf16", 1e-6, 2e-6, 0, 0},  // against operands rounded to bf16
    Tolerance{"linear", "bf16_rounding", 4e-3, 4e-3, 0, 0},
    Tolerance{"linear", "i8", 1e-6, 2e-6, 0, 0},  // against operands that i8 holds exactly
    Tolerance{"linear", "i8_rounding", 2e-2, 2e-2, 0, 0},
    Tolerance{"linear", "i8_rotated", 2e-2, 2e-2, 0, 0},  // with outliers of 30
    Tolerance{"rotate_rows", "f32", 1e-6, 1e-6, 0, 0},
    Tolerance{"rms_norm", "f32", 3e-7, 3e-7, 0, 0},
    Tolerance{"modulated_rms_norm", "f32", 3e-7, 3e-7, 0, 0},
    Tolerance{"layer_norm", "f32", 3e-7, 3e-7, 0, 0},
    Tolerance{"silu", "f32", 3e-7, 3e-7, 0, 0},
    Tolerance{"silu_mul", "f32", 3e-7, 3e-7, 0, 0},
    Tolerance{"gated_add", "f32", 3e-7, 3e-7, 0, 0},
    Tolerance{"apply_rope", "f32", 3e-7, 3e-7, 0, 0},
    Tolerance{"attention", "f32", 2e-6, 2e-6, 0, 0},
    // Scores of several hundred carry f32 rounding of 1e-5, which the exponential passes on.
    Tolerance{"attention", "f32_peaked", 1e-5, 5e-5, 0, 0},
    Tolerance{"attention", "bf16", 1e-2, 1e-2, 0, 0},
    Tolerance{"conv1d", "f32", 1e-6, 2e-6, 0, 0},
    Tolerance{"conv_transpose1d", "f32", 1e-6, 2e-6, 0, 0},
    Tolerance{"antialiased_snake_beta", "f32", 1e-6, 2e-6, 0, 0},
};

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
  ::testing::Test::RecordProperty(
      key, std::to_string(relative * 1e9) + " " + std::to_string(worst_relative * 1e9) + " e-9");
  EXPECT_LE(relative, bound.relative) << key << ": relative error";
  EXPECT_LE(worst_relative, bound.worst)
      << key << ": worst element " << worst_at << " of " << out.size() << " is " << out[worst_at]
      << " instead of " << reference[worst_at];
}

}  // namespace miniacc::testing
