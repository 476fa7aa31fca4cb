#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/adaln_curve.h"
#include "core/cancel_token.h"
#include "core/weight_source.h"

namespace miniacc {

/// The change of one AdaLN layer of a pruned checkpoint.
struct AdalnChange {
  std::string layer;          ///< "blocks.3.adaln_proj.linear"
  std::vector<float> weight;  ///< [rows, rank]
  std::vector<float> bias;    ///< [rows]
  FitSums sums;               ///< what the change leaves of what it should be
};
struct AdalnRebase {
  std::int64_t rank = 0;
  double curve_rel_resid = 0.0;  ///< of u(t) in the basis [table | 1]
  std::vector<AdalnChange> layers;

  /// The worst layer; a relative residual of NaN counts as worse than any number.
  [[nodiscard]] const AdalnChange* worst() const;
};

/// What has to be added to the AdaLN layers of `pruned` so that they modulate as those of the
/// finetuned `full`, by least squares over the table's grid in the basis [table | 1]:
///   G = argmin ‖u - [table | 1]·Gᵀ‖,  ΔW = (W_f·G)[:, :r] - W_p,  Δb = (W_f·G)[:, r] + b_f - b_p
/// in f32 (the fit in f64), in tiles of rows. kInvalidInput: no table in `pruned`, no time MLP or
/// no such layers in `full`, other numbers of rows, values that are not finite.
/// Source: spec adapters.md §5.1.
[[nodiscard]] Result<AdalnRebase> rebase_adaln(WeightSource& full, WeightSource& pruned,
                                               OpContext& ctx);

/// table(t) ~ q·u(t) + c over the grid: what lifts a delta of the pruned width to full width.
struct CurveLift {
  std::vector<float> q;  ///< [rank, Dt]
  std::vector<float> c;  ///< [rank]; empty where no constant is needed
  std::int64_t rank = 0;
  std::int64_t width = 0;
  std::int64_t num_directions = 0;  ///< of u that were used: as few as reach 1e-5
  double rel_resid = 0.0;           ///< ‖table - fit‖ / ‖table‖
};
/// Source: spec adapters.md §5.3. Errors as above.
[[nodiscard]] Result<CurveLift> fit_lift(WeightSource& full, WeightSource& pruned, OpContext& ctx);
/// The same on a table [grid, rank] and a curve [grid, Dt].
[[nodiscard]] CurveLift fit_lift(const MatrixF64& table, const MatrixF64& curve);

}  // namespace miniacc
