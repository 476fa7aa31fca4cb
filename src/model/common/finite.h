#pragma once

#include <span>

#include "kernels/op_context.h"

namespace miniacc {

/// True when no value is NaN or infinite. Reads host memory once.
[[nodiscard]] bool all_finite(const OpContext& ctx, std::span<const float> values);

}  // namespace miniacc
