#include "model/support/memory_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/float_convert.h"
#include "device/device.h"
#include "kernels/linear.h"
#include "support/random.h"

namespace miniacc::testing {

void MemoryWeights::set(const std::string& name, const Shape& shape, std::vector<float> values) {
  MINIACC_REQUIRE(static_cast<std::int64_t>(values.size()) == shape.num_elements(),
                  "memory weights: number of values");
  tensors[name] = {shape, std::move(values)};
}

void MemoryWeights::set_random(const std::string& name, const Shape& shape, float scale,
                               float mean) {
  std::uint64_t seed = 14695981039346656037ULL;  // FNV-1a, the same on every platform
  for (const char c : name) {
    seed = (seed ^ static_cast<std::uint8_t>(c)) * 1099511628211ULL;
  }
  std::vector<float> values = random_normal(shape.num_elements(), seed);
  for (float& value : values) {
    value = value * scale + mean;
  }
  set(name, shape, std::move(values));
}

std::vector<float>& MemoryWeights::values(std::string_view name) {
  const auto found = tensors.find(name);
  MINIACC_REQUIRE(found != tensors.end(), "memory weights: no such tensor");
  return found->second.values;
}

bool MemoryWeights::has(std::string_view name) const { return tensors.find(name) != tensors.end(); }

Result<const MemoryWeights::Entry*> MemoryWeights::find(std::string_view name) const {
  const auto found = tensors.find(name);
  if (found == tensors.end()) {
    return fail(ErrorCode::kNotFound, fmt::format("memory: there is no tensor {}", name));
  }
  return &found->second;
}

Result<Shape> MemoryWeights::shape(std::string_view name) const {
  MINIACC_ASSIGN(const Entry* entry, find(name));
  return entry->shape;
}

std::optional<std::vector<double>> MemoryWeights::config(std::string_view key) const {
  const auto found = config_values.find(key);
  if (found == config_values.end()) {
    return std::nullopt;
  }
  return found->second;
}

Result<Tensor> MemoryWeights::load(std::string_view name, Device& device) {
  MINIACC_ASSIGN(const Entry* entry, find(name));
  ++reads[std::string(name)];
  const bool finite =
      std::ranges::all_of(entry->values, [](float value) { return std::isfinite(value); });
  if (!finite && !allow_non_finite) {
    return fail(ErrorCode::kInvalidInput, fmt::format("memory: {} holds NaN or infinity", name));
  }
  return make_tensor(device, entry->shape, entry->values);
}

Result<Tensor> MemoryWeights::load_rows(std::string_view name, std::int64_t first,
                                        std::int64_t count, Device& device) {
  MINIACC_ASSIGN(const Entry* entry, find(name));
  ++reads[std::string(name)];
  MINIACC_REQUIRE(
      entry->shape.rank() == 2 && first >= 0 && count >= 0 && first + count <= entry->shape[0],
      "memory weights: rows outside the matrix");
  const std::int64_t width = entry->shape[1];
  const auto begin = entry->values.begin() + first * width;
  return make_tensor(device, {count, width}, std::vector<float>(begin, begin + count * width));
}

Result<OwnedWeightMatrix> MemoryWeights::load_matrix(std::string_view name, Precision precision,
                                                     Device& device) {
  MINIACC_ASSIGN(Tensor values, load(name, device));
  OwnedWeightMatrix matrix;
  switch (precision) {
    case Precision::kF32:
      matrix.values = std::move(values);
      break;
    case Precision::kBF16:
      matrix.values = empty_tensor(device, values.shape(), DType::kBF16);
      std::ranges::transform(values.f32(), matrix.values.view().as<std::uint16_t>(), float_to_bf16);
      break;
    case Precision::kInt8: {
      OpContext ctx{device};
      matrix.values = empty_tensor(device, values.shape(), DType::kI8);
      matrix.row_scale = empty_tensor(device, {values.shape()[0]});
      ops::quantize_rows(ctx, matrix.values.view(), matrix.row_scale.view(), values.view());
      break;
    }
  }
  return matrix;
}

}  // namespace miniacc::testing
