#pragma once

#include <optional>
#include <string>
#include <utility>

namespace miniacc::measure {

/// A measurement, or why there is none. The judge never fills a gap with a guess.
template <typename T>
struct Measured {
  std::optional<T> value;
  std::string reason;  ///< why `value` is empty; empty when it is not

  Measured() : reason("not measured") {}
  // Implicit, so that a function can return what it measured.
  Measured(T known) : value(std::move(known)) {}  // NOLINT(google-explicit-constructor)
  static Measured unknown(const std::string& why) {
    Measured result;
    result.reason = why;
    return result;
  }
};

}  // namespace miniacc::measure
