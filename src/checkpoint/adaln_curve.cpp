#include "checkpoint/adaln_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/activation.h"
#include "kernels/linear.h"
#include "kernels/time_curve.h"

namespace miniacc {

Result<Tensor> time_curve(WeightSource& full, std::int64_t grid, OpContext& ctx) {
  MINIACC_REQUIRE(grid >= 2, "time curve: two points at least");
  for (const char* name : {"time_embedder.proj_in.weight", "time_embedder.proj_out.weight"}) {
    if (!full.has(name)) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("there is no {}: a pruned checkpoint has no time MLP, a full one is "
                              "wanted",
                              name));
    }
  }
  MINIACC_ASSIGN(const Tensor in, full.load("time_embedder.proj_in.weight", ctx.device));
  MINIACC_ASSIGN(const Tensor in_bias, full.load("time_embedder.proj_in.bias", ctx.device));
  MINIACC_ASSIGN(const Tensor out, full.load("time_embedder.proj_out.weight", ctx.device));
  MINIACC_ASSIGN(const Tensor out_bias, full.load("time_embedder.proj_out.bias", ctx.device));
  std::vector<float> times(static_cast<std::size_t>(grid));
  for (std::int64_t i = 0; i < grid; ++i) {
    times[static_cast<std::size_t>(i)] = static_cast<float>(i) / static_cast<float>(grid - 1);
  }
  Tensor curve = time_mlp(ctx, {in.view(), in_bias.view(), out.view(), out_bias.view()}, times);
  ops::silu(ctx, curve.view(), curve.view());
  return curve;
}

CurveDirections curve_basis(const MatrixF64& curve, std::int64_t max_size) {
  const Svd parts = leading_svd(curve, max_size);
  CurveDirections basis;
  basis.size = static_cast<std::int64_t>(parts.s.size());
  basis.directions = to_f32(transposed(parts.v));
  MatrixF64 coefficients = parts.u;
  double kept = 0.0;
  for (std::int64_t k = 0; k < basis.size; ++k) {
    const double s = parts.s[static_cast<std::size_t>(k)];
    kept += s * s;
    for (std::int64_t g = 0; g < curve.rows; ++g) {
      coefficients.at(g, k) *= s;
    }
  }
  basis.coefficients = to_f32(coefficients);
  const double total = norm(curve);
  basis.truncation = total > 0.0 ? std::sqrt(std::max(0.0, total * total - kept)) / total : 0.0;
  return basis;
}

CurveTable fit_curve_table(const MatrixF64& curve, std::int64_t rank) {
  MINIACC_REQUIRE(rank >= 1 && rank <= curve.columns, "fit_curve_table: rank");
  std::vector<double> mean(static_cast<std::size_t>(curve.columns));
  for (std::int64_t g = 0; g < curve.rows; ++g) {
    for (std::int64_t c = 0; c < curve.columns; ++c) {
      mean[static_cast<std::size_t>(c)] += curve.at(g, c) / static_cast<double>(curve.rows);
    }
  }
  MatrixF64 centred = curve;
  for (std::int64_t g = 0; g < curve.rows; ++g) {
    for (std::int64_t c = 0; c < curve.columns; ++c) {
      centred.at(g, c) -= mean[static_cast<std::size_t>(c)];
    }
  }
  const Svd parts = leading_svd(centred, rank);
  const MatrixF64 table = product(centred, parts.v);  // [grid, rank]
  CurveTable fit;
  fit.rank = rank;
  fit.table = to_f32(table);
  fit.projection = to_f32(transposed(parts.v));
  fit.projection.insert(fit.projection.end(), mean.begin(), mean.end());
  const double total = norm(curve);
  fit.curve_rel_resid =
      total > 0.0 ? norm(difference(centred, product(table, transposed(parts.v)))) / total : 0.0;
  return fit;
}

double FitSums::relative() const {
  if (residual == 0.0) {
    return 0.0;
  }
  return std::sqrt(residual / wanted);  // infinite where nothing was wanted
}

double FitSums::wanted_rms() const {
  return count > 0 ? std::sqrt(wanted / static_cast<double>(count)) : 0.0;
}

Tensor times_transposed(OpContext& ctx, const float* x, std::int64_t rows,
                        const std::vector<float>& weights, std::int64_t k) {
  const std::int64_t n = static_cast<std::int64_t>(weights.size()) / k;
  Tensor out = empty_tensor(ctx.device, {rows, n});
  ops::linear(ctx, out.view(), ConstTensorView(x, {rows, k}, DType::kF32),
              {ConstTensorView(weights.data(), {n, k}, DType::kF32)});
  return out;
}

}  // namespace miniacc
