#include "model/common/shape_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace miniacc {

Result<Shape> shape_of_rank(const WeightSource& weights, std::string_view component,
                            const std::string& name, int rank) {
  MINIACC_ASSIGN(Shape shape, weights.shape(name));
  const bool positive = std::ranges::all_of(shape.dims(), [](std::int64_t dim) { return dim > 0; });
  if (shape.rank() != rank || !positive) {
    return fail(ErrorCode::kInvalidInput, fmt::format("{}: {} is {}, wanted {} positive dimensions",
                                                      component, name, shape.to_string(), rank));
  }
  return shape;
}

Status check_shape(const WeightSource& weights, std::string_view component, const std::string& name,
                   const Shape& wanted) {
  MINIACC_ASSIGN(Shape shape, weights.shape(name));
  if (shape != wanted) {
    return fail(ErrorCode::kInvalidInput, fmt::format("{}: {} is {}, wanted {}", component, name,
                                                      shape.to_string(), wanted.to_string()));
  }
  return {};
}

Result<double> positive_config(const WeightSource& weights, std::string_view component,
                               std::string_view key, double fallback) {
  const auto values = weights.config(key);
  if (!values) {
    return fallback;
  }
  if (values->size() != 1 || !std::isfinite(values->front()) || values->front() <= 0.0) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: config key {} holds [{}], wanted one number above zero", component,
                            key, fmt::join(*values, ", ")));
  }
  return values->front();
}

Result<float> eps_config(const WeightSource& weights, std::string_view component,
                         std::string_view key, double fallback) {
  constexpr double kLargestEps = 0.1;
  MINIACC_ASSIGN(const double value, positive_config(weights, component, key, fallback));
  // Below the smallest normal float it may be zero in the kernels.
  if (value < static_cast<double>(std::numeric_limits<float>::min()) || value > kLargestEps) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: config key {} is {}, wanted a number above 0, at most {}",
                            component, key, value, kLargestEps));
  }
  return static_cast<float>(value);
}

Result<double> theta_config(const WeightSource& weights, std::string_view component,
                            std::string_view key, double fallback) {
  constexpr double kLargestTheta = 1e12;
  MINIACC_ASSIGN(const double value, positive_config(weights, component, key, fallback));
  if (value < 1.0 || value > kLargestTheta) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: config key {} is {}, wanted a number from 1 to {}", component, key,
                            value, kLargestTheta));
  }
  return value;
}

Result<std::int64_t> count_config(const WeightSource& weights, std::string_view component,
                                  std::string_view key, std::int64_t fallback, std::int64_t limit) {
  MINIACC_ASSIGN(const double value,
                 positive_config(weights, component, key, static_cast<double>(fallback)));
  if (value != std::floor(value) || value > static_cast<double>(limit)) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: config key {} is {}, wanted a whole number from 1 to {}",
                            component, key, value, limit));
  }
  return static_cast<std::int64_t>(value);
}

}  // namespace miniacc
