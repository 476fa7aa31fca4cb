#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace miniacc {

/// The arithmetic a matrix product runs in.
enum class Precision {
  kF32,   ///< f32 weights and activations: the reference
  kBF16,  ///< bf16 operands, f32 accumulation, f32 result
  kInt8,  ///< i8 weights per row, i8 activations per token, i32 accumulation, f32 result
};

/// A weight matrix as the linear op consumes it; a view. Quantised weights are this type, never a
/// scale hidden inside a tensor.
///   values          [n, k]  f32, bf16 or i8 (row-major, `out` features first)
///   row_scale       [n]     f32, present exactly when values is i8: the weight is
///                           values[n, k] * row_scale[n]
///   rotation_group  0, or the ConvRot group (i8 only): values hold W·Hᵀ over groups of that many
///                   input columns, and the activation is rotated the same way before it is
///                   quantised (spec model.md §2.5)
struct WeightMatrix {
  ConstTensorView values;
  ConstTensorView row_scale = {};
  std::int64_t rotation_group = 0;
};

/// A WeightMatrix that owns its memory.
struct OwnedWeightMatrix {
  Tensor values;
  Tensor row_scale;
  std::int64_t rotation_group = 0;

  [[nodiscard]] WeightMatrix view() const {
    return {values.view(), row_scale.empty() ? ConstTensorView{} : row_scale.view(),
            rotation_group};
  }
  [[nodiscard]] std::size_t size_bytes() const {
    return values.size_bytes() + row_scale.size_bytes();
  }
};

}  // namespace miniacc
