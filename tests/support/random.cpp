#include "support/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace miniacc::testing {
namespace {

// SplitMix64 (Steele et al. 2014): tiny, well mixed, the same everywhere.
std::uint64_t next(std::uint64_t& state) {
  state += 0x9E3779B97F4A7C15ULL;
  std::uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

double uniform(std::uint64_t& state) {
  return (static_cast<double>(next(state) >> 11) + 0.5) * 0x1.0p-53;
}

}  // namespace

std::vector<float> random_normal(std::int64_t count, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::uint64_t state = seed;
  for (float& value : values) {
    const double radius = std::sqrt(-2.0 * std::log(uniform(state)));
    value = static_cast<float>(radius * std::cos(2.0 * std::numbers::pi * uniform(state)));
  }
  return values;
}

Tensor random_tensor(Device& device, const Shape& shape, std::uint64_t seed, float scale) {
  std::vector<float> values = random_normal(shape.num_elements(), seed);
  for (float& value : values) {
    value *= scale;
  }
  return make_tensor(device, shape, values);
}

Tensor make_tensor(Device& device, const Shape& shape, const std::vector<float>& values) {
  Tensor tensor = empty_tensor(device, shape);
  MINIACC_REQUIRE(tensor.f32().size() == values.size(), "make_tensor: number of values");
  std::copy(values.begin(), values.end(), tensor.f32().begin());
  return tensor;
}

Tensor make_index(Device& device, const std::vector<std::int32_t>& values) {
  Tensor tensor = empty_tensor(device, {static_cast<std::int64_t>(values.size())}, DType::kI32);
  std::copy(values.begin(), values.end(), tensor.view().as<std::int32_t>());
  return tensor;
}

}  // namespace miniacc::testing
