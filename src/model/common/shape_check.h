#pragma once

#include <string>
#include <string_view>

#include "core/weight_source.h"

namespace miniacc {

/// The shape of tensor `name`, which must have `rank` dimensions, each at least 1. kInvalidInput:
/// "<component>: <name> is [...], wanted <rank> dimensions".
[[nodiscard]] Result<Shape> shape_of_rank(const WeightSource& weights, std::string_view component,
                                          const std::string& name, int rank);

/// Succeeds when tensor `name` exists with exactly this shape; kInvalidInput names both shapes.
[[nodiscard]] Status check_shape(const WeightSource& weights, std::string_view component,
                                 const std::string& name, const Shape& wanted);

/// A scalar hyper-parameter, or `fallback` where the checkpoint says nothing. kInvalidInput unless
/// it is one finite number above zero.
[[nodiscard]] Result<double> positive_config(const WeightSource& weights,
                                             std::string_view component, std::string_view key,
                                             double fallback);

/// The same for the constant under the root of a norm: above 0 (also as f32), at most 0.1.
[[nodiscard]] Result<float> eps_config(const WeightSource& weights, std::string_view component,
                                       std::string_view key, double fallback);

/// The same for the base of rotary frequencies: 1 to 1e12.
[[nodiscard]] Result<double> theta_config(const WeightSource& weights, std::string_view component,
                                          std::string_view key, double fallback);

/// The same for a count of at most `limit`.
[[nodiscard]] Result<std::int64_t> count_config(const WeightSource& weights,
                                                std::string_view component, std::string_view key,
                                                std::int64_t fallback, std::int64_t limit);

}  // namespace miniacc
