#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/device.h"
#include "model/support/memory_weights.h"
#include "support/golden.h"

namespace miniacc::testing {

/// A golden tensor on `device`, and golden integers as the 32-bit ones that ids and tags are.
[[nodiscard]] Tensor golden_tensor(const Golden& golden, const std::string& name, Device& device);
[[nodiscard]] std::vector<std::int32_t> golden_ints(const Golden& golden, const std::string& name);

/// Weights of the micro model under canonical names, converted here from the official folder: an
/// independent second opinion on what the checkpoint layer serves, and tests may change them.
[[nodiscard]] MemoryWeights micro_transformer();
/// The curve-table form.
[[nodiscard]] MemoryWeights micro_transformer_pruned();
[[nodiscard]] MemoryWeights micro_text_encoder();

}  // namespace miniacc::testing
