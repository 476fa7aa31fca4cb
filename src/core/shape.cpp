#include "core/shape.h"

#include <fmt/ranges.h>

#include <limits>

#include "core/error.h"

namespace miniacc {

Shape::Shape(std::initializer_list<std::int64_t> dims)
    : Shape(std::span<const std::int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const std::int64_t> dims) {
  for (const std::int64_t size : dims) {
    push_back(size);
  }
}

std::int64_t Shape::operator[](int axis) const {
  MINIACC_REQUIRE(axis >= 0 && axis < rank_, "shape: axis out of range");
  return dims_[static_cast<std::size_t>(axis)];
}

void Shape::set(int axis, std::int64_t size) {
  MINIACC_REQUIRE(axis >= 0 && axis < rank_, "shape: axis out of range");
  MINIACC_REQUIRE(size >= 0, "shape: negative dimension");
  dims_[static_cast<std::size_t>(axis)] = size;
}

void Shape::push_back(std::int64_t size) {
  MINIACC_REQUIRE(rank_ < kMaxRank, "shape: at most six dimensions");
  MINIACC_REQUIRE(size >= 0, "shape: negative dimension");
  dims_[static_cast<std::size_t>(rank_++)] = size;
}

std::int64_t Shape::num_elements() const {
  std::int64_t product = 1;
  bool overflow = false;
  for (const std::int64_t size : dims()) {
    if (size == 0) {
      return 0;
    }
    overflow = overflow || product > std::numeric_limits<std::int64_t>::max() / size;
    product = overflow ? product : product * size;
  }
  MINIACC_REQUIRE(!overflow, "shape: more elements than a 64-bit integer counts");
  return product;
}

std::string Shape::to_string() const { return fmt::format("[{}]", fmt::join(dims(), ", ")); }

}  // namespace miniacc
