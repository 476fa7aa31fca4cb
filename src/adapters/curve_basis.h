#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "core/weight_source.h"
#include "kernels/op_context.h"

namespace miniacc {

/// The time MLP of a full transformer, f32.
struct TimeMlp {
  Tensor proj_in_weight;   ///< [hidden, input]
  Tensor proj_in_bias;     ///< [hidden]
  Tensor proj_out_weight;  ///< [full width, hidden]
  Tensor proj_out_bias;    ///< [full width]
};
/// kInvalidInput where `full` has none.
[[nodiscard]] Result<TimeMlp> load_time_mlp(WeightSource& full, Device& device);

/// The curve u(t) = silu(time MLP(t)) of a full checkpoint in the coordinates of a pruned one:
/// u(t) ≈ map · [table(t); 1] by least squares over the table's grid t_i = i / (G - 1).
/// A change ΔW of an AdaLN projection of full width then acts on the pruned one as
///   ΔW · u(t) ≈ (ΔW · map[:, :r]) · table(t) + ΔW · map[:, r].
/// Source: spec adapters.md §5.2.
class CurveBasis {
 public:
  /// `table` [G, r] is a pruned transformer's adaln_t_table. Fits in double. kInvalidInput where
  /// the curve is not one that the table can hold: a relative residual above 1e-2.
  [[nodiscard]] static Result<CurveBasis> fit(OpContext& ctx, ConstTensorView table,
                                              const TimeMlp& mlp);

  [[nodiscard]] std::int64_t full_width() const { return curve_.shape()[1]; }
  [[nodiscard]] std::int64_t rank() const { return rank_; }
  /// ‖C - fit‖ / ‖C‖ over the grid.
  [[nodiscard]] double residual() const { return residual_; }

  /// rows [n, full width] · map → [n, r + 1], in double. The last column is the share of the bias.
  [[nodiscard]] std::vector<double> project(ConstTensorView rows) const;

  /// ‖error - base's error‖ / ‖C - base's C‖: how much of a change of the curve the basis loses; 0
  /// where the curves are equal. Both are of one grid and width.
  [[nodiscard]] double loss_against(const CurveBasis& base) const;
  /// `project` through the difference of this map and the base's: what rows of an AdaLN weight gain
  /// by the change of the curve.
  [[nodiscard]] std::vector<double> project_against(const CurveBasis& base,
                                                    ConstTensorView rows) const;

  /// What a low-rank change up · down loses: ‖up·down·(C - fit)‖ / ‖up·down·C‖ over the grid; 0 for
  /// a change that is zero on it. Without `up` the same for rows `down` themselves.
  ///   down [k, full width] · up [n, k] or empty, both f32
  [[nodiscard]] double loss(OpContext& ctx, ConstTensorView down, ConstTensorView up) const;

 private:
  [[nodiscard]] std::vector<double> multiply(ConstTensorView rows,
                                             const std::vector<double>& map) const;

  Tensor curve_;             ///< C [G, full width] f32
  Tensor error_;             ///< C - fit
  std::vector<double> map_;  ///< [full width, r + 1]
  std::int64_t rank_ = 0;
  double residual_ = 0.0;
};

}  // namespace miniacc
