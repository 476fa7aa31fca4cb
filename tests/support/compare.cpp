#include "support/compare.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace miniacc::testing {
namespace {

template <typename Reference>
double relative(std::span<const float> out, std::span<const Reference> reference) {
  if (out.size() != reference.size()) {
    return std::numeric_limits<double>::infinity();
  }
  double difference = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!std::isfinite(out[i])) {
      return std::numeric_limits<double>::infinity();
    }
    const double delta = static_cast<double>(out[i]) - static_cast<double>(reference[i]);
    difference += delta * delta;
    norm += static_cast<double>(reference[i]) * static_cast<double>(reference[i]);
  }
  return norm > 0.0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

template <typename Reference>
::testing::AssertionResult close(std::span<const float> out, std::span<const Reference> reference,
                                 double bound) {
  if (out.size() != reference.size()) {
    return ::testing::AssertionFailure() << out.size() << " values instead of " << reference.size();
  }
  const double error = relative(out, reference);
  if (error <= bound) {
    return ::testing::AssertionSuccess() << "relative error " << error;
  }
  std::size_t worst = 0;
  double worst_delta = -1.0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double delta = std::fabs(static_cast<double>(out[i]) - static_cast<double>(reference[i]));
    if (!(delta <= worst_delta)) {
      worst = i;
      worst_delta = delta;
    }
  }
  return ::testing::AssertionFailure()
         << "relative error " << error << " over the bound " << bound << "; worst at " << worst
         << ": " << out[worst] << " instead of " << reference[worst];
}

}  // namespace

double relative_error(std::span<const float> out, std::span<const float> reference) {
  return relative(out, reference);
}
double relative_error(std::span<const float> out, std::span<const double> reference) {
  return relative(out, reference);
}

double max_abs_error(std::span<const float> out, std::span<const float> reference) {
  if (out.size() != reference.size()) {
    return std::numeric_limits<double>::infinity();
  }
  double worst = 0.0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double delta = std::fabs(static_cast<double>(out[i]) - static_cast<double>(reference[i]));
    if (!(delta <= worst)) {
      worst = std::isfinite(delta) ? delta : std::numeric_limits<double>::infinity();
    }
  }
  return worst;
}

::testing::AssertionResult close_to(std::span<const float> out, std::span<const float> reference,
                                    double bound) {
  return close(out, reference, bound);
}
::testing::AssertionResult close_to(std::span<const float> out, std::span<const double> reference,
                                    double bound) {
  return close(out, reference, bound);
}

::testing::AssertionResult identical_to(std::span<const float> out,
                                        std::span<const float> reference) {
  if (out.size() != reference.size()) {
    return ::testing::AssertionFailure() << out.size() << " values instead of " << reference.size();
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(out[i]) != std::bit_cast<std::uint32_t>(reference[i])) {
      return ::testing::AssertionFailure()
             << "first difference at " << i << ": " << out[i] << " instead of " << reference[i];
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace miniacc::testing
