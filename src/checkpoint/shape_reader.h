#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "checkpoint/schema.h"

namespace miniacc {

/// Reads dimensions off shapes, with the errors of a file that lacks them.
class ShapeReader {
 public:
  ShapeReader(const ShapeLookup& shapes, const std::string& where)
      : shapes_(shapes), where_(where) {}

  [[nodiscard]] bool has(std::string_view name) const { return shapes_(name) != nullptr; }

  /// Dimension `axis` of a tensor that must have `rank` dimensions.
  [[nodiscard]] Result<std::int64_t> dim(std::string_view name, int axis, int rank) const {
    const Shape* shape = shapes_(name);
    if (shape == nullptr) {
      return fail(ErrorCode::kInvalidInput, fmt::format("{}: tensor {} is missing", where_, name));
    }
    if (shape->rank() != rank || shape->num_elements() == 0) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: {} is {}, wanted {} dimensions, none of them zero", where_, name,
                              shape->to_string(), rank));
    }
    return (*shape)[axis];
  }

  /// How many of pattern(0), pattern(1), ... exist without a gap.
  template <typename Pattern>
  [[nodiscard]] std::int64_t count(Pattern&& pattern) const {
    std::int64_t number = 0;
    while (has(pattern(number))) {
      ++number;
    }
    return number;
  }

  /// How many stems stem(0), stem(1), ... have at least one of the tensors stem + tail. One missing
  /// tensor then is reported as missing, not as the end of the stack.
  template <typename Stem>
  [[nodiscard]] std::int64_t count_stems(Stem&& stem,
                                         std::initializer_list<std::string_view> tails) const {
    std::int64_t number = 0;
    while (std::any_of(tails.begin(), tails.end(), [&](std::string_view tail) {
      return has(std::string(stem(number)).append(tail));
    })) {
      ++number;
    }
    return number;
  }

  /// value / divisor, or an error that says `what` does not divide.
  [[nodiscard]] Result<std::int64_t> divide(std::int64_t value, std::int64_t divisor,
                                            std::string_view what) const {
    if (divisor <= 0 || value % divisor != 0) {
      return fail(ErrorCode::kInvalidInput, fmt::format("{}: {} is {}, wanted a multiple of {}",
                                                        where_, what, value, divisor));
    }
    return value / divisor;
  }

  [[nodiscard]] const std::string& where() const { return where_; }

 private:
  const ShapeLookup& shapes_;
  const std::string& where_;
};

}  // namespace miniacc
