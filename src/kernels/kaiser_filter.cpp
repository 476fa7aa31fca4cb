#include "kernels/kaiser_filter.h"

#include <cmath>
#include <numbers>

#include "core/error.h"

namespace miniacc {
namespace {

/// Modified Bessel function of the first kind, order 0, by its power series Σ ((x/2)^n / n!)².
/// std::cyl_bessel_i would do, but clang's library lacks it.
double bessel_i0(double x) {
  double term = 1.0;
  double sum = 1.0;
  for (int n = 1; term > 1e-17 * sum; ++n) {
    term *= (x / (2.0 * n)) * (x / (2.0 * n));
    sum += term;
  }
  return sum;
}

double sinc(double x) {
  return x == 0.0 ? 1.0 : std::sin(std::numbers::pi * x) / (std::numbers::pi * x);
}

/// Kaiser's empirical window parameter for a stop-band attenuation in dB.
double kaiser_beta(double attenuation) {
  if (attenuation > 50.0) {
    return 0.1102 * (attenuation - 8.7);
  }
  if (attenuation >= 21.0) {
    return 0.5842 * std::pow(attenuation - 21.0, 0.4) + 0.07886 * (attenuation - 21.0);
  }
  return 0.0;
}

}  // namespace

std::vector<float> kaiser_sinc_filter(std::int64_t taps, double cutoff, double half_width) {
  MINIACC_REQUIRE(taps >= 2 && taps % 2 == 0, "kaiser_sinc_filter: an even number of taps");
  const double half = static_cast<double>(taps) / 2.0;
  const double attenuation = 2.285 * (half - 1.0) * std::numbers::pi * (4.0 * half_width) + 7.95;
  const double beta = kaiser_beta(attenuation);
  std::vector<double> values(static_cast<std::size_t>(taps));
  double sum = 0.0;
  for (std::int64_t n = 0; n < taps; ++n) {
    const double position = 2.0 * static_cast<double>(n) / static_cast<double>(taps - 1) - 1.0;
    const double window =
        bessel_i0(beta * std::sqrt(std::fmax(0.0, 1.0 - position * position))) / bessel_i0(beta);
    const double time = static_cast<double>(n) - half + 0.5;
    double& value = values[static_cast<std::size_t>(n)];
    value = 2.0 * cutoff * window * sinc(2.0 * cutoff * time);
    sum += value;
  }
  std::vector<float> filter;
  filter.reserve(values.size());
  for (const double value : values) {
    filter.push_back(static_cast<float>(value / sum));
  }
  return filter;
}

std::vector<float> antialiasing_filter(std::int64_t taps) {
  constexpr double kFactor = 2.0;
  return kaiser_sinc_filter(taps, 0.5 / kFactor, 0.6 / kFactor);
}

}  // namespace miniacc
