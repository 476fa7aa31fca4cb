#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace miniacc {

/// Dimensions of a tensor, outermost first; at most kMaxRank of them. Rank 0 has one element.
class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims);
  explicit Shape(std::span<const std::int64_t> dims);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] std::int64_t operator[](int axis) const;
  [[nodiscard]] std::int64_t back() const { return (*this)[rank_ - 1]; }
  void set(int axis, std::int64_t size);
  void push_back(std::int64_t size);

  /// Product of the dimensions; InternalError where it overflows. The caller has checked dimensions
  /// that came from a file.
  [[nodiscard]] std::int64_t num_elements() const;
  /// "[2, 3, 4]".
  [[nodiscard]] std::string to_string() const;
  [[nodiscard]] std::span<const std::int64_t> dims() const {
    return {dims_.data(), static_cast<std::size_t>(rank_)};
  }

  friend bool operator==(const Shape& a, const Shape& b) = default;

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace miniacc
