#pragma once

#include <span>

#include "kernels/op_context.h"

namespace miniacc {

/// True when no value is NaN or infinite. Reads the values once; those of a CUDA device there.
[[nodiscard]] bool all_finite(OpContext& ctx, ConstTensorView values);
[[nodiscard]] bool all_finite(const OpContext& ctx, std::span<const float> values);

}  // namespace miniacc
