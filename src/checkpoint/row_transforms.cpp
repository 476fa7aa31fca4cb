#include "checkpoint/row_transforms.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace miniacc {
namespace {

/// Modified Bessel function of the first kind, order 0, by its power series; arguments here are
/// below 10, where it converges in some 30 terms.
double bessel_i0(double x) {
  double sum = 1.0;
  double term = 1.0;
  for (int k = 1; k < 64; ++k) {
    const double factor = x / (2.0 * k);
    term *= factor * factor;
    sum += term;
  }
  return sum;
}

}  // namespace

void fold_weight_norm(std::span<float> direction, float magnitude) {
  double squares = 0.0;
  for (const float value : direction) {
    squares += static_cast<double>(value) * value;
  }
  if (squares == 0.0) {
    return;
  }
  const double factor = static_cast<double>(magnitude) / std::sqrt(squares);
  for (float& value : direction) {
    value = static_cast<float>(value * factor);
  }
}

std::vector<float> resample_filter(std::int64_t taps) {
  constexpr double kCutoff = 0.25;
  constexpr double kHalfWidth = 0.3;
  constexpr double kPi = std::numbers::pi;
  const std::int64_t half_taps = taps / 2;
  const auto half_size = static_cast<double>(half_taps);
  const double attenuation = 2.285 * (half_size - 1.0) * kPi * (4.0 * kHalfWidth) + 7.95;
  double beta = 0.0;
  if (attenuation > 50.0) {
    beta = 0.1102 * (attenuation - 8.7);
  } else if (attenuation >= 21.0) {
    beta = 0.5842 * std::pow(attenuation - 21.0, 0.4) + 0.07886 * (attenuation - 21.0);
  }
  std::vector<double> values(static_cast<std::size_t>(taps));
  double sum = 0.0;
  for (std::int64_t n = 0; n < taps; ++n) {
    const double position = 2.0 * static_cast<double>(n) / static_cast<double>(taps - 1) - 1.0;
    const double window =
        bessel_i0(beta * std::sqrt(std::max(0.0, 1.0 - position * position))) / bessel_i0(beta);
    const double x = 2.0 * kCutoff * (static_cast<double>(n) - static_cast<double>(taps - 1) / 2.0);
    const double sinc = x == 0.0 ? 1.0 : std::sin(kPi * x) / (kPi * x);
    values[static_cast<std::size_t>(n)] = 2.0 * kCutoff * window * sinc;
    sum += values[static_cast<std::size_t>(n)];
  }
  std::vector<float> filter(values.size());
  for (std::size_t n = 0; n < values.size(); ++n) {
    filter[n] = static_cast<float>(values[n] / sum);
  }
  return filter;
}

}  // namespace miniacc
