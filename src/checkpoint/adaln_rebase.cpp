#include "checkpoint/adaln_rebase.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace miniacc {
namespace {

constexpr std::int64_t kTileValues = std::int64_t{1} << 20;
constexpr double kEnoughDirections = 1e-5;  // relative residual of the table
constexpr double kNeedsConstant = 1e-4;
constexpr double kSmallestSingular = 1e-10;  // of the largest
// f32 products of this size are off by this much of the modulation: a smaller change is none.
constexpr double kNoise = 1e-6;

bool all_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

std::vector<std::string> adaln_layers(const WeightSource& source) {
  std::vector<std::string> layers;
  for (int block = 0; source.has(fmt::format("blocks.{}.adaln_proj.linear.weight", block));
       ++block) {
    layers.push_back(fmt::format("blocks.{}.adaln_proj.linear", block));
  }
  if (source.has("final_layer.adaln_proj.linear.weight")) {
    layers.emplace_back("final_layer.adaln_proj.linear");
  }
  return layers;
}

Result<MatrixF64> read_table(WeightSource& pruned, Device& device) {
  if (!pruned.has("adaln_t_table")) {
    return fail(ErrorCode::kInvalidInput,
                "the pruned checkpoint has no adaln_t_table: it is not pruned");
  }
  MINIACC_ASSIGN(const Tensor table, pruned.load("adaln_t_table", device));
  return to_f64(table.f32(), table.shape()[0], table.shape()[1]);
}

MatrixF64 with_ones(const MatrixF64& table) {
  MatrixF64 out(table.rows, table.columns + 1);
  for (std::int64_t g = 0; g < table.rows; ++g) {
    for (std::int64_t k = 0; k < table.columns; ++k) {
      out.at(g, k) = table.at(g, k);
    }
    out.at(g, table.columns) = 1.0;
  }
  return out;
}

class Rebaser {
 public:
  Rebaser(WeightSource& full, WeightSource& pruned, OpContext& ctx)
      : full_(full), pruned_(pruned), ctx_(ctx) {}

  Result<AdalnRebase> run() {
    MINIACC_ASSIGN(const MatrixF64 table, read_table(pruned_, ctx_.device));
    MINIACC_ASSIGN(const Tensor curve, time_curve(full_, table.rows, ctx_));
    grid_ = table.rows;
    width_ = curve.shape()[1];
    AdalnRebase result;
    result.rank = rank_ = table.columns;
    const MatrixF64 exact = to_f64(curve.f32(), grid_, width_);
    const MatrixF64 basis = with_ones(table);
    const MatrixF64 fit = product(pseudo_inverse(basis), exact);  // [rank + 1, Dt]
    result.curve_rel_resid = norm(difference(exact, product(basis, fit))) / norm(exact);
    projection_ = to_f32(fit);
    table_ = to_f32(table);
    basis_ = curve_basis(exact);
    const std::vector<std::string> layers = adaln_layers(full_);
    if (layers.empty()) {
      return fail(ErrorCode::kInvalidInput, "the full checkpoint has no AdaLN layers");
    }
    for (const std::string& layer : layers) {
      MINIACC_ASSIGN(AdalnChange change, rebase(layer));
      result.layers.push_back(std::move(change));
    }
    return result;
  }

 private:
  Result<AdalnChange> rebase(const std::string& layer) {
    MINIACC_ASSIGN(const Shape full, full_.shape(layer + ".weight"));
    MINIACC_ASSIGN(const Shape pruned, pruned_.shape(layer + ".weight"));
    if (full.rank() != 2 || pruned.rank() != 2 || full[0] != pruned[0] || full[1] != width_ ||
        pruned[1] != rank_) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{} is {} in the full and {} in the pruned checkpoint, wanted [n, "
                              "{}] and [n, {}]",
                              layer, full.to_string(), pruned.to_string(), width_, rank_));
    }
    MINIACC_ASSIGN(const Tensor full_bias, full_.load(layer + ".bias", ctx_.device));
    MINIACC_ASSIGN(const Tensor pruned_bias, pruned_.load(layer + ".bias", ctx_.device));
    AdalnChange change;
    change.layer = layer;
    const std::int64_t tile = std::max<std::int64_t>(1, kTileValues / std::max(width_, grid_));
    double modulation = 0.0;
    for (std::int64_t first = 0; first < full[0]; first += tile) {
      ctx_.check_cancelled();
      const std::int64_t rows = std::min(tile, full[0] - first);
      MINIACC_ASSIGN(const Tensor w_full,
                     full_.load_rows(layer + ".weight", first, rows, ctx_.device));
      MINIACC_ASSIGN(const Tensor w_pruned,
                     pruned_.load_rows(layer + ".weight", first, rows, ctx_.device));
      modulation += add_tile(w_full, w_pruned, full_bias.view().f32() + first,
                             pruned_bias.view().f32() + first, rows, change);
    }
    if (!all_finite(change.weight) || !all_finite(change.bias)) {
      return fail(ErrorCode::kInvalidInput, layer + ": its change is not finite");
    }
    if (change.sums.residual <= kNoise * kNoise * modulation) {
      change.sums.residual = 0.0;
    }
    return change;
  }

  /// Returns the squares of the full modulation.
  double add_tile(const Tensor& w_full, const Tensor& w_pruned, const float* b_full,
                  const float* b_pruned, std::int64_t rows, AdalnChange& change) {
    const Tensor fit = times_transposed(ctx_, w_full.view().f32(), rows, projection_, width_);
    const Tensor coordinates =
        times_transposed(ctx_, w_full.view().f32(), rows, basis_.directions, width_);
    const Tensor full =
        times_transposed(ctx_, coordinates.view().f32(), rows, basis_.coefficients, basis_.size);
    std::vector<float> delta(static_cast<std::size_t>(rows * rank_));
    std::vector<float> bias(static_cast<std::size_t>(rows));
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t k = 0; k < rank_; ++k) {
        delta[static_cast<std::size_t>(r * rank_ + k)] =
            fit.view().f32()[r * (rank_ + 1) + k] - w_pruned.view().f32()[r * rank_ + k];
      }
      bias[static_cast<std::size_t>(r)] =
          fit.view().f32()[r * (rank_ + 1) + rank_] + b_full[r] - b_pruned[r];
    }
    const Tensor base = times_transposed(ctx_, w_pruned.view().f32(), rows, table_, rank_);
    const Tensor added = times_transposed(ctx_, delta.data(), rows, table_, rank_);
    FitSums& sums = change.sums;
    double modulation = 0.0;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t g = 0; g < grid_; ++g) {
        const std::int64_t i = r * grid_ + g;
        const double z_full = static_cast<double>(full.view().f32()[i]) + b_full[r];
        const double wanted = z_full - (static_cast<double>(base.view().f32()[i]) + b_pruned[r]);
        const double left = wanted - (static_cast<double>(added.view().f32()[i]) +
                                      bias[static_cast<std::size_t>(r)]);
        modulation += z_full * z_full;
        sums.wanted += wanted * wanted;
        sums.residual += left * left;
        sums.max_abs = std::max(sums.max_abs, std::fabs(left));
        ++sums.count;
      }
    }
    change.weight.insert(change.weight.end(), delta.begin(), delta.end());
    change.bias.insert(change.bias.end(), bias.begin(), bias.end());
    return modulation;
  }

  WeightSource& full_;
  WeightSource& pruned_;
  OpContext& ctx_;
  std::int64_t grid_ = 0;
  std::int64_t width_ = 0;
  std::int64_t rank_ = 0;
  std::vector<float> projection_;  ///< [rank + 1, Dt]
  std::vector<float> table_;
  CurveDirections basis_;
};

std::vector<double> column_means(const MatrixF64& matrix) {
  std::vector<double> means(static_cast<std::size_t>(matrix.columns));
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    for (std::int64_t c = 0; c < matrix.columns; ++c) {
      means[static_cast<std::size_t>(c)] += matrix.at(r, c) / static_cast<double>(matrix.rows);
    }
  }
  return means;
}

MatrixF64 minus_means(MatrixF64 matrix, const std::vector<double>& means) {
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    for (std::int64_t c = 0; c < matrix.columns; ++c) {
      matrix.at(r, c) -= means[static_cast<std::size_t>(c)];
    }
  }
  return matrix;
}

/// qᵀ [Dt, rank] of the smallest number of directions that reproduce the table.
MatrixF64 solve(const MatrixF64& table, const MatrixF64& curve, CurveLift& lift, double scale) {
  const Svd parts = leading_svd(curve, std::min<std::int64_t>(64, curve.columns));
  const MatrixF64 coordinates = product(transposed(parts.u), table);  // [k, rank]
  MatrixF64 solution(curve.columns, table.columns);
  MatrixF64 left = table;
  lift.num_directions = 0;
  for (std::int64_t k = 0; k < static_cast<std::int64_t>(parts.s.size()); ++k) {
    const double s = parts.s[static_cast<std::size_t>(k)];
    if (norm(left) <= kEnoughDirections * scale || s <= kSmallestSingular * parts.s.front()) {
      break;
    }
    for (std::int64_t j = 0; j < table.columns; ++j) {
      const double coordinate = coordinates.at(k, j);
      for (std::int64_t c = 0; c < curve.columns; ++c) {
        solution.at(c, j) += parts.v.at(c, k) * coordinate / s;
      }
      for (std::int64_t g = 0; g < table.rows; ++g) {
        left.at(g, j) -= parts.u.at(g, k) * coordinate;
      }
    }
    ++lift.num_directions;
  }
  lift.rel_resid = norm(difference(table, product(curve, solution))) / scale;
  return solution;
}

}  // namespace

const AdalnChange* AdalnRebase::worst() const {
  const AdalnChange* worst = nullptr;
  for (const AdalnChange& layer : layers) {
    if (worst == nullptr || !(layer.sums.relative() <= worst->sums.relative())) {
      worst = &layer;
    }
    if (std::isnan(worst->sums.relative())) {
      break;
    }
  }
  return worst;
}

Result<AdalnRebase> rebase_adaln(WeightSource& full, WeightSource& pruned, OpContext& ctx) {
  return Rebaser(full, pruned, ctx).run();
}

CurveLift fit_lift(const MatrixF64& table, const MatrixF64& curve) {
  MINIACC_REQUIRE(table.rows == curve.rows, "fit_lift: one grid");
  CurveLift lift;
  lift.rank = table.columns;
  lift.width = curve.columns;
  const double scale = norm(table);
  if (scale == 0.0) {
    lift.q.resize(static_cast<std::size_t>(lift.rank * lift.width));
    return lift;
  }
  MatrixF64 solution = solve(table, curve, lift, scale);
  if (!(lift.rel_resid <= kNeedsConstant)) {
    CurveLift shifted = lift;
    const std::vector<double> table_mean = column_means(table);
    const std::vector<double> curve_mean = column_means(curve);
    MatrixF64 other =
        solve(minus_means(table, table_mean), minus_means(curve, curve_mean), shifted, scale);
    if (shifted.rel_resid < lift.rel_resid) {
      lift = shifted;
      solution = std::move(other);
      for (std::int64_t j = 0; j < lift.rank; ++j) {
        double constant = table_mean[static_cast<std::size_t>(j)];
        for (std::int64_t c = 0; c < lift.width; ++c) {
          constant -= solution.at(c, j) * curve_mean[static_cast<std::size_t>(c)];
        }
        lift.c.push_back(static_cast<float>(constant));
      }
    }
  }
  lift.q = to_f32(transposed(solution));
  return lift;
}

Result<CurveLift> fit_lift(WeightSource& full, WeightSource& pruned, OpContext& ctx) {
  MINIACC_ASSIGN(const MatrixF64 table, read_table(pruned, ctx.device));
  MINIACC_ASSIGN(const Tensor curve, time_curve(full, table.rows, ctx));
  return fit_lift(table, to_f64(curve.f32(), table.rows, curve.shape()[1]));
}

}  // namespace miniacc
