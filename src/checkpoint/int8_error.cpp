#include "checkpoint/int8_error.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "checkpoint/adaln_curve.h"
#include "kernels/linear.h"

namespace miniacc {
namespace {

constexpr std::int64_t kActivationRows = 8;

std::uint64_t mix(std::uint64_t x) {
  // splitmix64 (Steele, Lea & Flood 2014)
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

double uniform(std::uint64_t seed) {
  return (static_cast<double>(mix(seed) >> 11) + 0.5) * 0x1.0p-53;
}

/// Box & Muller 1958.
float normal(std::uint64_t index) {
  return static_cast<float>(std::sqrt(-2.0 * std::log(uniform(2 * index))) *
                            std::cos(2.0 * std::numbers::pi * uniform(2 * index + 1)));
}

double ratio(double part, double whole) { return whole > 0.0 ? std::sqrt(part / whole) : 0.0; }

}  // namespace

const Int8ErrorMeter::Activations& Int8ErrorMeter::activations(std::int64_t columns,
                                                               std::int64_t group) {
  const auto [place, added] = activations_.try_emplace({columns, group});
  Activations& made = place->second;
  if (!added) {
    return made;
  }
  made.plain.resize(static_cast<std::size_t>(kActivationRows * columns));
  for (std::size_t i = 0; i < made.plain.size(); ++i) {
    made.plain[i] = normal(i);
  }
  made.rotated = made.plain;
  if (group > 0) {
    OpContext ctx{device_};
    ops::rotate_rows(ctx, TensorView(made.rotated.data(), {kActivationRows, columns}, DType::kF32),
                     group);
  }
  made.quantised = made.rotated;
  for (std::int64_t row = 0; row < kActivationRows; ++row) {
    float* values = made.quantised.data() + row * columns;
    float peak = 0.0F;
    for (std::int64_t c = 0; c < columns; ++c) {
      peak = std::max(peak, std::fabs(values[c]));
    }
    const float step = peak > 0.0F ? peak / 127.0F : 1.0F;
    for (std::int64_t c = 0; c < columns; ++c) {
      values[c] = step * std::nearbyint(values[c] / step);
    }
  }
  return made;
}

Status Int8ErrorMeter::observe(const Int8Slab& slab) {
  const auto [place, added] = sums_.try_emplace(slab.tensor->name);
  if (added) {
    order_.push_back(slab.tensor->name);
  }
  Sums& sums = place->second;
  sums.rows += slab.count;
  sums.columns = slab.columns;
  sums.group = slab.group;
  const auto size = static_cast<std::size_t>(slab.count * slab.columns);
  std::vector<float> stored(size);
  for (std::int64_t r = 0; r < slab.count; ++r) {
    for (std::int64_t c = 0; c < slab.columns; ++c) {
      stored[static_cast<std::size_t>(r * slab.columns + c)] =
          slab.quantised[r * slab.columns + c] * slab.steps[r];
    }
  }
  OpContext ctx{device_, num_threads_};
  const Activations& x = activations(slab.columns, slab.group);
  const std::vector<float> original(slab.original, slab.original + size);
  const Tensor wanted =
      times_transposed(ctx, x.plain.data(), kActivationRows, original, slab.columns);
  const Tensor weights_only =
      times_transposed(ctx, x.rotated.data(), kActivationRows, stored, slab.columns);
  const Tensor both =
      times_transposed(ctx, x.quantised.data(), kActivationRows, stored, slab.columns);
  const auto add_squares = [](double& sum, double value) { sum += value * value; };
  for (std::int64_t i = 0; i < kActivationRows * slab.count; ++i) {
    const double y = wanted.view().f32()[i];
    add_squares(sums.output, y);
    add_squares(sums.output_error, weights_only.view().f32()[i] - y);
    add_squares(sums.int8_output_error, both.view().f32()[i] - y);
  }
  if (slab.group > 0) {  // H is its own inverse
    ops::rotate_rows(ctx, TensorView(stored.data(), {slab.count, slab.columns}, DType::kF32),
                     slab.group);
  }
  for (std::size_t i = 0; i < size; ++i) {
    add_squares(sums.weight, original[i]);
    add_squares(sums.weight_error, static_cast<double>(stored[i]) - original[i]);
  }
  return {};
}

std::vector<Int8Error> Int8ErrorMeter::errors() const {
  std::vector<Int8Error> errors;
  for (const std::string& name : order_) {
    const Sums& sums = sums_.at(name);
    errors.push_back({name, sums.rows, sums.columns, sums.group,
                      ratio(sums.weight_error, sums.weight), ratio(sums.output_error, sums.output),
                      ratio(sums.int8_output_error, sums.output)});
  }
  return errors;
}

}  // namespace miniacc
