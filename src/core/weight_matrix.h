#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace miniacc {

/// The arithmetic a matrix product runs in.
enum class Precision {
  kF32,   ///< f32 weights and activations: the reference
  kBF16,  ///< bf16 operands, f32 accumulation, f32 result
  kInt8,  ///< i8 weights per row, i8 activations per token, i32 accumulation, f32 result
};

/// An adapter's change of a matrix as a product of its own: rows [first_row, first_row + num_rows)
/// of x · Wᵀ also get scale · ((x · downᵀ) · upᵀ). The matrix itself stays as it is stored.
/// Source: spec adapters.md §7.
struct LowRankDelta {
  Tensor down;                 ///< [rank, k]         f32 or bf16
  Tensor up;                   ///< [num_rows, rank]  same dtype
  float scale = 0.0F;          ///< strength · alpha / rank
  std::int64_t first_row = 0;  ///< of the matrix's n output features

  [[nodiscard]] std::size_t size_bytes() const { return down.size_bytes() + up.size_bytes(); }
};

/// A weight matrix as the linear op consumes it; a view. Quantised weights are this type, never a
/// scale hidden inside a tensor.
///   values          [n, k]  f32, bf16 or i8 (row-major, `out` features first)
///   row_scale       [n]     f32, present exactly when values is i8: the weight is
///                           values[n, k] * row_scale[n]
///   rotation_group  0, or the ConvRot group (i8 only): values hold W·Hᵀ over groups of that many
///                   input columns, and the activation is rotated the same way before it is
///                   quantised (spec model.md §2.5)
///   low_rank        side products, added in f32 in their order to the product with values; they
///                   see the activation as it is given, neither rotated nor quantised
struct WeightMatrix {
  ConstTensorView values;
  ConstTensorView row_scale = {};
  std::int64_t rotation_group = 0;
  std::span<const LowRankDelta> low_rank = {};
};

/// A WeightMatrix that owns its memory.
struct OwnedWeightMatrix {
  Tensor values;
  Tensor row_scale;
  std::int64_t rotation_group = 0;
  std::vector<LowRankDelta> low_rank = {};

  [[nodiscard]] WeightMatrix view() const {
    return {values.view(), row_scale.empty() ? ConstTensorView{} : row_scale.view(), rotation_group,
            low_rank};
  }
  [[nodiscard]] std::size_t size_bytes() const {
    std::size_t bytes = values.size_bytes() + row_scale.size_bytes();
    for (const LowRankDelta& delta : low_rank) {
      bytes += delta.size_bytes();
    }
    return bytes;
  }
};

}  // namespace miniacc
