#include "model/support/vae_memory_source.h"

#include <algorithm>
#include <cmath>

#include "core/float_convert.h"
#include "device/device.h"

namespace miniacc::testing {

void VaeMemorySource::set(const std::string& name, const Shape& shape, std::vector<float> values) {
  MINIACC_REQUIRE(shape.num_elements() == static_cast<std::int64_t>(values.size()),
                  "memory source: number of values");
  entries_[name] = {shape, std::move(values)};
}

bool VaeMemorySource::has(std::string_view name) const {
  return entries_.find(name) != entries_.end();
}

Result<Shape> VaeMemorySource::shape(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    return fail(ErrorCode::kNotFound, "memory has no tensor " + std::string(name));
  }
  return found->second.shape;
}

std::optional<std::vector<double>> VaeMemorySource::config(std::string_view key) const {
  const auto found = config_.find(key);
  return found == config_.end() ? std::nullopt : std::optional(found->second);
}

Result<Tensor> VaeMemorySource::load(std::string_view name, Device& device) {
  MINIACC_ASSIGN(const Shape dims, shape(name));
  ++reads_[std::string(name)];
  MINIACC_ASSIGN(Tensor tensor, try_empty_tensor(device, dims, DType::kF32));
  const auto& values = entries_.find(name)->second.values;
  std::copy(values.begin(), values.end(), tensor.f32().begin());
  return tensor;
}

Result<Tensor> VaeMemorySource::load_rows(std::string_view name, std::int64_t first,
                                          std::int64_t count, Device& device) {
  MINIACC_ASSIGN(const Shape dims, shape(name));
  MINIACC_ASSIGN(Tensor tensor, try_empty_tensor(device, Shape({count, dims[1]}), DType::kF32));
  std::copy_n(entries_.find(name)->second.values.begin() + first * dims[1], count * dims[1],
              tensor.f32().begin());
  return tensor;
}

Result<OwnedWeightMatrix> VaeMemorySource::load_matrix(std::string_view name, Precision precision,
                                                       Device& device) {
  MINIACC_ASSIGN(Tensor full, load(name, device));
  OwnedWeightMatrix matrix;
  if (precision == Precision::kF32) {
    matrix.values = std::move(full);
    return matrix;
  }
  const std::int64_t rows = full.shape()[0];
  const std::int64_t columns = full.shape()[1];
  if (precision == Precision::kBF16) {
    matrix.values = empty_tensor(device, full.shape(), DType::kBF16);
    std::transform(full.f32().begin(), full.f32().end(), matrix.values.view().as<std::uint16_t>(),
                   float_to_bf16);
    return matrix;
  }
  matrix.values = empty_tensor(device, full.shape(), DType::kI8);
  matrix.row_scale = empty_tensor(device, {rows});
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* source = full.f32().data() + row * columns;
    float peak = 0.0F;
    for (std::int64_t i = 0; i < columns; ++i) {
      peak = std::max(peak, std::abs(source[i]));
    }
    const float scale = peak == 0.0F ? 1.0F : peak / 127.0F;
    matrix.row_scale.f32()[static_cast<std::size_t>(row)] = scale;
    auto* target = matrix.values.view().as<std::int8_t>() + row * columns;
    for (std::int64_t i = 0; i < columns; ++i) {
      target[i] = static_cast<std::int8_t>(std::nearbyint(source[i] / scale));
    }
  }
  return matrix;
}

int VaeMemorySource::reads(const std::string& name) const {
  const auto found = reads_.find(name);
  return found == reads_.end() ? 0 : found->second;
}

}  // namespace miniacc::testing
