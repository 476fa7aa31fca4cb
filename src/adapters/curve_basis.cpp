#include "adapters/curve_basis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <utility>

#include "kernels/activation.h"
#include "kernels/linear.h"

namespace miniacc {
namespace {

// A pruned checkpoint of the same model fits its full one to 2e-5; another model's curve does not
// come near this.
constexpr double kMaxResidual = 1e-2;
// Columns that the others explain to this share of their length add nothing but rounding.
constexpr double kDependent = 1e-10;

/// silu(W2 · silu(W1 · e(t_i) + b1) + b2) for t_i = i / (grid - 1): [grid, width] f32.
Tensor evaluate_curve(OpContext& ctx, const TimeMlp& mlp, std::int64_t grid) {
  Device& device = ctx.device;
  const std::int64_t size = mlp.proj_in_weight.shape()[1];
  const std::int64_t half = size / 2;
  Tensor features = empty_tensor(device, {grid, size});
  for (std::int64_t i = 0; i < grid; ++i) {
    const double time = static_cast<double>(i) / static_cast<double>(grid - 1);
    for (std::int64_t k = 0; k < half; ++k) {
      const double angle =
          time * std::exp(-std::log(10000.0) * static_cast<double>(k) / static_cast<double>(half));
      features.f32()[static_cast<std::size_t>(i * size + k)] = static_cast<float>(std::cos(angle));
      features.f32()[static_cast<std::size_t>(i * size + half + k)] =
          static_cast<float>(std::sin(angle));
    }
  }
  Tensor hidden = empty_tensor(device, {grid, mlp.proj_in_weight.shape()[0]});
  ops::linear(ctx, hidden.view(), features.view(), {.values = mlp.proj_in_weight.view()},
              mlp.proj_in_bias.view());
  ops::silu(ctx, hidden.view(), hidden.view());
  Tensor curve = empty_tensor(device, {grid, mlp.proj_out_weight.shape()[0]});
  ops::linear(ctx, curve.view(), hidden.view(), {.values = mlp.proj_out_weight.view()},
              mlp.proj_out_bias.view());
  ops::silu(ctx, curve.view(), curve.view());
  return curve;
}

/// Orthonormal columns Q and triangle R of M = [table | 1], by Gram and Schmidt, twice over.
struct Factors {
  std::vector<std::vector<double>> q;  ///< columns; an empty one depends on those before it
  std::vector<std::vector<double>> r;  ///< r[j][i], i <= j: share of q_i in column j
};

Factors factorise(ConstTensorView table) {
  const std::int64_t grid = table.dim(0);
  const std::int64_t rank = table.dim(1);
  Factors factors;
  for (std::int64_t j = 0; j <= rank; ++j) {
    std::vector<double> column(static_cast<std::size_t>(grid), 1.0);
    for (std::int64_t i = 0; j < rank && i < grid; ++i) {
      column[static_cast<std::size_t>(i)] = static_cast<double>(table.f32()[i * rank + j]);
    }
    const auto length = [&] {
      double sum = 0.0;
      for (const double value : column) {
        sum += value * value;
      }
      return std::sqrt(sum);
    };
    const double before = length();
    std::vector<double>& r = factors.r.emplace_back(static_cast<std::size_t>(j + 1), 0.0);
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t i = 0; i < factors.q.size(); ++i) {
        double dot = 0.0;
        for (std::size_t row = 0; row < factors.q[i].size(); ++row) {
          dot += factors.q[i][row] * column[row];
        }
        for (std::size_t row = 0; row < factors.q[i].size(); ++row) {
          column[row] -= dot * factors.q[i][row];
        }
        r[i] += dot;
      }
    }
    const double after = length();
    r.back() = after;
    if (after <= kDependent * before) {
      column.clear();
    }
    for (double& value : column) {
      value /= after;
    }
    factors.q.push_back(std::move(column));
  }
  return factors;
}

double norm(std::span<const float> values) {
  double sum = 0.0;
  for (const float value : values) {
    sum += static_cast<double>(value) * static_cast<double>(value);
  }
  return std::sqrt(sum);
}

}  // namespace

Result<TimeMlp> load_time_mlp(WeightSource& full, Device& device) {
  TimeMlp mlp;
  const std::pair<const char*, Tensor*> parts[] = {
      {"time_embedder.proj_in.weight", &mlp.proj_in_weight},
      {"time_embedder.proj_in.bias", &mlp.proj_in_bias},
      {"time_embedder.proj_out.weight", &mlp.proj_out_weight},
      {"time_embedder.proj_out.bias", &mlp.proj_out_bias}};
  for (const auto& [name, tensor] : parts) {
    if (!full.has(name)) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("--adaln-base has no {}: it must be a full transformer, not a pruned "
                              "one",
                              name));
    }
    MINIACC_ASSIGN(*tensor, full.load(name, device));
  }
  return mlp;
}

Result<CurveBasis> CurveBasis::fit(OpContext& ctx, ConstTensorView table, const TimeMlp& mlp) {
  CurveBasis basis;
  const std::int64_t grid = table.dim(0);
  if (grid < 2) {
    return fail(ErrorCode::kInvalidInput, "adaln_t_table has fewer than two rows");
  }
  basis.rank_ = table.dim(1);
  basis.curve_ = evaluate_curve(ctx, mlp, grid);
  basis.error_ = empty_tensor(ctx.device, basis.curve_.shape());
  const Factors factors = factorise(table);
  const std::int64_t width = basis.full_width();
  const std::int64_t columns = basis.rank_ + 1;
  basis.map_.assign(static_cast<std::size_t>(width * columns), 0.0);
  std::vector<double> target(static_cast<std::size_t>(grid));
  std::vector<double> shares(static_cast<std::size_t>(columns));
  for (std::int64_t c = 0; c < width; ++c) {
    const auto at = [&](std::int64_t i) { return static_cast<std::size_t>(i * width + c); };
    for (std::int64_t i = 0; i < grid; ++i) {
      target[static_cast<std::size_t>(i)] = static_cast<double>(basis.curve_.f32()[at(i)]);
    }
    for (std::size_t j = 0; j < shares.size(); ++j) {
      double dot = 0.0;
      for (std::size_t i = 0; i < factors.q[j].size(); ++i) {
        dot += factors.q[j][i] * target[i];
      }
      for (std::size_t i = 0; i < factors.q[j].size(); ++i) {
        target[i] -= dot * factors.q[j][i];
      }
      shares[j] = dot;
    }
    for (std::int64_t i = 0; i < grid; ++i) {
      basis.error_.f32()[at(i)] = static_cast<float>(target[static_cast<std::size_t>(i)]);
    }
    double* map = basis.map_.data() + c * columns;
    for (std::size_t j = shares.size(); j-- > 0;) {  // back substitution
      if (factors.q[j].empty()) {
        continue;
      }
      double value = shares[j];
      for (std::size_t k = j + 1; k < shares.size(); ++k) {
        value -= factors.r[k][j] * map[k];
      }
      map[j] = value / factors.r[j][j];
    }
  }
  basis.residual_ = norm(basis.error_.f32()) / norm(basis.curve_.f32());
  if (!(basis.residual_ <= kMaxResidual)) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("--adaln-base is not the transformer that this one was pruned from: "
                            "its time curve leaves a residual of {:.2g} in the table's basis, at "
                            "most {:.2g} is expected",
                            basis.residual_, kMaxResidual));
  }
  return basis;
}

std::vector<double> CurveBasis::multiply(ConstTensorView rows,
                                         const std::vector<double>& map) const {
  const std::int64_t width = full_width();
  const std::int64_t columns = rank_ + 1;
  MINIACC_REQUIRE(rows.shape.rank() == 2 && rows.dim(1) == width && rows.is_contiguous(),
                  "CurveBasis: rows of the full width");
  std::vector<double> out(static_cast<std::size_t>(rows.dim(0) * columns));
  const float* values = rows.f32();
  for (std::int64_t row = 0; row < rows.dim(0); ++row) {
    double* target = out.data() + row * columns;
    for (std::int64_t c = 0; c < width; ++c) {
      const auto value = static_cast<double>(values[row * width + c]);
      const double* factors = map.data() + c * columns;
      for (std::int64_t j = 0; j < columns; ++j) {
        target[j] += value * factors[j];
      }
    }
  }
  return out;
}

std::vector<double> CurveBasis::project(ConstTensorView rows) const { return multiply(rows, map_); }

std::vector<double> CurveBasis::project_against(const CurveBasis& base,
                                                ConstTensorView rows) const {
  std::vector<double> difference(map_.size());
  std::transform(map_.begin(), map_.end(), base.map_.begin(), difference.begin(), std::minus<>());
  return multiply(rows, difference);
}

double CurveBasis::loss_against(const CurveBasis& base) const {
  const auto distance = [](const Tensor& a, const Tensor& b) {
    double sum = 0.0;
    for (std::size_t i = 0; i < a.f32().size(); ++i) {
      const double difference = static_cast<double>(a.f32()[i]) - static_cast<double>(b.f32()[i]);
      sum += difference * difference;
    }
    return std::sqrt(sum);
  };
  const double whole = distance(curve_, base.curve_);
  return whole == 0.0 ? 0.0 : distance(error_, base.error_) / whole;
}

double CurveBasis::loss(OpContext& ctx, ConstTensorView down, ConstTensorView up) const {
  const std::int64_t inner = down.dim(0);
  // ‖up · X‖² = Σ X_i · (upᵀ·up) · X_i over columns X_i: the product itself has 96768 rows.
  std::vector<double> gram;
  if (!up.empty()) {
    gram.assign(static_cast<std::size_t>(inner * inner), 0.0);
    for (std::int64_t row = 0; row < up.dim(0); ++row) {
      const float* values = up.f32() + row * inner;
      for (std::int64_t i = 0; i < inner; ++i) {
        double* target = gram.data() + i * inner;
        const auto factor = static_cast<double>(values[i]);
        for (std::int64_t j = 0; j < inner; ++j) {
          target[j] += factor * static_cast<double>(values[j]);
        }
      }
    }
  }
  const auto length = [&](const Tensor& points) {
    Tensor x = empty_tensor(ctx.device, {points.shape()[0], inner});
    ops::linear(ctx, x.view(), points.view(), {.values = down});
    if (gram.empty()) {
      return norm(x.f32());
    }
    double sum = 0.0;
    for (std::int64_t p = 0; p < points.shape()[0]; ++p) {
      const float* values = x.f32().data() + p * inner;
      for (std::int64_t i = 0; i < inner; ++i) {
        double dot = 0.0;
        for (std::int64_t j = 0; j < inner; ++j) {
          dot += gram[static_cast<std::size_t>(i * inner + j)] * static_cast<double>(values[j]);
        }
        sum += dot * static_cast<double>(values[i]);
      }
    }
    return std::sqrt(std::max(sum, 0.0));
  };
  const double whole = length(curve_);
  const double lost = length(error_);
  return whole == 0.0 && lost == 0.0 ? 0.0 : lost / whole;
}

}  // namespace miniacc
