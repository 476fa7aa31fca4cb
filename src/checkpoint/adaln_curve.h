#pragma once

#include <cstdint>
#include <vector>

#include "core/linear_algebra.h"
#include "core/weight_source.h"
#include "kernels/op_context.h"

namespace miniacc {

/// u(t) = silu(temb(t)) at t = i / (grid - 1), the input of every AdaLN projection of a full
/// transformer: [grid, Dt] f32. kInvalidInput when `full` has no time MLP.
/// Source: spec model.md §3.2, adapters.md §5.1.
[[nodiscard]] Result<Tensor> time_curve(WeightSource& full, std::int64_t grid, OpContext& ctx);

/// A curve [grid, Dt] in its leading directions: curve ~ coefficients · directions. A smooth curve
/// needs few, so that layers are compared over the whole grid without [rows, grid] products of full
/// width.
struct CurveDirections {
  std::int64_t size = 0;
  std::vector<float> directions;    ///< [size, Dt], orthonormal rows
  std::vector<float> coefficients;  ///< [grid, size]
  double truncation = 0.0;          ///< relative norm of what is left out
};
[[nodiscard]] CurveDirections curve_basis(const MatrixF64& curve, std::int64_t max_size = 64);

/// A table in place of the time MLP: u(t) ~ mean + directions · table(t).
struct CurveTable {
  std::int64_t rank = 0;
  std::vector<float> table;       ///< [grid, rank]
  std::vector<float> projection;  ///< [rank + 1, Dt]: directions, then the mean
  double curve_rel_resid = 0.0;   ///< ‖u - fit‖ / ‖u‖
};
/// The best table of that rank (principal directions around the mean); rank is at most Dt.
[[nodiscard]] CurveTable fit_curve_table(const MatrixF64& curve, std::int64_t rank);

/// Sums over a layer of what a fit leaves and of what it should give.
struct FitSums {
  double residual = 0.0;  ///< squares
  double wanted = 0.0;
  double max_abs = 0.0;
  std::int64_t count = 0;

  /// ‖residual‖ / ‖wanted‖; 0 when both are 0; NaN stays NaN.
  [[nodiscard]] double relative() const;
  [[nodiscard]] double wanted_rms() const;
};

/// out [rows, n] = x [rows, k] · weights [n, k]ᵀ on the CPU.
[[nodiscard]] Tensor times_transposed(OpContext& ctx, const float* x, std::int64_t rows,
                                      const std::vector<float>& weights, std::int64_t k);

}  // namespace miniacc
