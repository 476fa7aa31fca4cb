#pragma once

#include <filesystem>
#include <memory>

#include "checkpoint/open_component.h"

namespace miniacc::testing {

/// Opens a component and records a test failure with the message when that does not work.
std::unique_ptr<ComponentWeights> open_or_fail(const std::filesystem::path& path);

/// Every canonical tensor is there on both sides and the same bit for bit. `rope.inv_freq` may be
/// absent: diffusers computes it. Returns how many tensors were compared.
int expect_same_weights(ComponentWeights& left, ComponentWeights& right);

}  // namespace miniacc::testing
