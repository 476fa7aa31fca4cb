#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "device/device.h"

namespace miniacc::testing {

/// Reproducible standard normal values (any platform: own generator, not std::normal_distribution).
std::vector<float> random_normal(std::int64_t count, std::uint64_t seed);
/// The same as a CPU f32 tensor.
Tensor random_tensor(Device& device, const Shape& shape, std::uint64_t seed, float scale = 1.0F);
/// A CPU tensor holding these values.
Tensor make_tensor(Device& device, const Shape& shape, const std::vector<float>& values);
Tensor make_index(Device& device, const std::vector<std::int32_t>& values);

}  // namespace miniacc::testing
