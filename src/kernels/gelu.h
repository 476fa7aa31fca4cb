#pragma once

#include "kernels/op_context.h"

namespace miniacc::ops {

enum class GeluForm {
  kExact,  ///< x·Φ(x), Φ the normal distribution function, by way of erfc
  kTanh,   ///< x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³)))
};

/// out = gelu(x), elementwise; x, out f32, contiguous, may alias. NaN stays NaN.
/// Source: Hendrycks & Gimpel 2016; spec text_encoder.md §5.5 (tanh), §5.6 (exact).
void gelu(OpContext& ctx, TensorView out, ConstTensorView x, GeluForm form);

}  // namespace miniacc::ops
