#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "adapters/delta_values.h"
#include "adapters/lora_builder.h"
#include "adapters/low_rank_rows.h"
#include "io/dequantize.h"

namespace miniacc {
namespace {

// Of what an AdaLN change does along the curve; spec adapters.md §5.1, step 6.
constexpr double kMaxLoss = 1e-2;
/// Dense changes are projected this many rows at a time.
constexpr std::int64_t kSlabRows = 4096;
constexpr std::string_view kTable = "adaln_t_table";
/// Tables that differ by less are roundings of one (spec adapters.md §5).
constexpr float kSameTable = 1e-3F;

bool is_float_dtype(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 ||
         dtype == DType::kBF16;
}

/// Rows [n, columns + 1] into values [·, columns] and bias [·] from row `first` on.
void split_bias(const std::vector<double>& rows, std::int64_t columns, std::int64_t first,
                std::vector<float>& values, std::vector<double>& bias) {
  const auto count = static_cast<std::int64_t>(rows.size()) / (columns + 1);
  for (std::int64_t row = 0; row < count; ++row) {
    const double* source = rows.data() + row * (columns + 1);
    std::transform(source, source + columns, values.begin() + (first + row) * columns,
                   [](double value) { return static_cast<float>(value); });
    bias[static_cast<std::size_t>(first + row)] = source[columns];
  }
}

}  // namespace

bool LoraBuilder::is_of_full_width(const Module& module) const {
  if (!pruned_ || module.name.module.find("adaln_proj") == std::string::npos) {
    return false;
  }
  const auto target = base_.shape(module.name.module + ".weight");
  return std::any_of(module.tensors.begin(), module.tensors.end(), [&](const auto& item) {
    const auto& [role, entry] = item;
    return (role == AdapterRole::kDown || role == AdapterRole::kDiff) && target &&
           entry->shape.rank() == 2 && entry->shape[1] != (*target)[1];
  });
}

bool LoraBuilder::is_curve_replacement(const AdapterName& name) const {
  return pruned_ && name.role == AdapterRole::kReplacement &&
         (name.module == kTable || name.module.find("adaln_proj") != std::string::npos);
}

/// Changes of several adapters add up only in one basis, which is the transformer's own.
Status LoraBuilder::compare_table(const TensorEntry& entry) {
  MINIACC_ASSIGN(const Tensor table, base_.load(std::string(kTable), device_));
  if (entry.shape != table.shape()) {
    return refuse(
        fmt::format("{} is {}, and the transformer's is {}: its AdaLN layers are in "
                    "another basis",
                    entry.name, entry.shape.to_string(), table.shape().to_string()));
  }
  MINIACC_ASSIGN(const auto bytes, file().bytes(entry));
  std::vector<float> values(static_cast<std::size_t>(entry.shape.num_elements()));
  dequantize(entry.dtype, bytes, entry.shape.num_elements(), values.data());
  float worst = 0.0F;
  for (std::size_t i = 0; i < values.size(); ++i) {
    worst = std::max(worst, std::abs(values[i] - table.f32()[i]));
  }
  if (worst > kSameTable) {
    lora_.warnings_.push_back(fmt::format(
        "{}: its adaln_t_table differs from the transformer's by up to {:.2g}; the transformer's "
        "is kept, and the adapter's AdaLN layers were not made for it",
        file().path().string(), worst));
  }
  return {};
}

Status LoraBuilder::add_replacement(const TensorEntry& entry, const AdapterName& name) {
  if (!is_float_dtype(entry.dtype)) {
    return refuse(
        fmt::format("{} is {}, wanted f32, f16, bf16 or f64", entry.name, dtype_name(entry.dtype)));
  }
  if (name.module == kTable) {
    return compare_table(entry);
  }
  LoraDelta delta;
  delta.tensor = name.module + (entry.name.ends_with(".bias") ? ".bias" : ".weight");
  if (!base_.has(delta.tensor)) {
    return refuse(fmt::format("{} replaces {}, which this transformer does not have", entry.name,
                              delta.tensor));
  }
  MINIACC_ASSIGN(const Tensor base, base_.load(delta.tensor, device_));
  if (entry.shape != base.shape()) {
    return refuse(fmt::format("{} is {}, wanted {}", entry.name, entry.shape.to_string(),
                              base.shape().to_string()));
  }
  MINIACC_ASSIGN(const auto bytes, file().bytes(entry));
  std::vector<float> values(static_cast<std::size_t>(entry.shape.num_elements()));
  dequantize(entry.dtype, bytes, entry.shape.num_elements(), values.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] -= base.f32()[i];
  }
  delta.num_rows = entry.shape[0];
  delta.factor = request_.strength;
  delta.computed_dense = keep(entry.shape, std::move(values));
  lora_.deltas_.push_back(std::move(delta));
  return {};
}

Status LoraBuilder::change_time_mlp(TimeMlp& mlp) {
  const std::map<std::string, Tensor*> tensors = {
      {"time_embedder.proj_in.weight", &mlp.proj_in_weight},
      {"time_embedder.proj_in.bias", &mlp.proj_in_bias},
      {"time_embedder.proj_out.weight", &mlp.proj_out_weight},
      {"time_embedder.proj_out.bias", &mlp.proj_out_bias}};
  for (const LoraDelta& delta : time_deltas_) {
    Tensor& tensor = *tensors.at(delta.tensor);
    const std::int64_t rows = tensor.shape()[0];
    const std::int64_t columns = tensor.shape().num_elements() / rows;
    DeltaRows change{.begin = 0, .end = rows, .scale = delta.factor};
    Tensor first;
    Tensor second;
    if (delta.is_dense()) {
      MINIACC_ASSIGN(first, load_dense_rows(file(), delta, 0, rows, columns, device_));
      change.dense = first.f32().data();
    } else {
      MINIACC_ASSIGN(first, load_down(file(), delta, device_));
      MINIACC_ASSIGN(second, load_up(file(), delta, device_));
      change.rank = delta.rank();
      change.down = first.f32().data();
      change.up = second.f32().data();
    }
    add_low_rank_rows(OpContext{device_}, tensor.f32().data(), rows, columns, {&change, 1});
  }
  return {};
}

Status LoraBuilder::fit_curve() {
  if (curve_) {
    return {};
  }
  OpContext ctx{device_};
  MINIACC_ASSIGN(const Tensor table, base_.load("adaln_t_table", device_));
  MINIACC_ASSIGN(TimeMlp mlp, load_time_mlp(*options_.adaln_base, device_));
  MINIACC_ASSIGN(curve_, CurveBasis::fit(ctx, table.view(), mlp));
  if (time_deltas_.empty() || request_.strength == 0.0F) {
    return {};
  }
  base_curve_ = std::move(curve_);
  curve_.reset();
  MINIACC_RETURN_IF_ERROR(change_time_mlp(mlp));
  auto changed = CurveBasis::fit(ctx, table.view(), mlp);
  const double loss = changed ? changed->loss_against(*base_curve_) : 1.0;
  if (!(loss <= kMaxLoss)) {
    return refuse(
        fmt::format("its change of the time embedding loses {:.2g} of its size when it is carried "
                    "over to the pruned transformer's curve, at most {:.2g} is accepted",
                    loss, kMaxLoss));
  }
  worst_loss_ = std::max(worst_loss_, loss);
  curve_ = *std::move(changed);
  return {};
}

Status LoraBuilder::add_curve_change() {
  if (time_deltas_.empty() || request_.strength == 0.0F) {
    return {};
  }
  MINIACC_RETURN_IF_ERROR(fit_curve());
  std::vector<std::string> modules = {"final_layer.adaln_proj.linear"};
  for (std::int64_t i = 0;; ++i) {
    const std::string module = fmt::format("blocks.{}.adaln_proj.linear", i);
    if (!base_.has(module + ".weight")) {
      break;
    }
    modules.push_back(module);
  }
  WeightSource& full = *options_.adaln_base;
  const std::int64_t columns = curve_->rank();
  for (const std::string& module : modules) {
    LoraDelta delta;
    delta.tensor = module + ".weight";
    delta.factor = 1.0F;  // the strength is in the curve, which is not linear in it
    MINIACC_ASSIGN(const Shape target, base_.shape(delta.tensor));
    MINIACC_ASSIGN(const Shape source, full.shape(delta.tensor));
    if (source != Shape({target[0], curve_->full_width()})) {
      return refuse(fmt::format("--adaln-base: {} is {}, wanted [{}, {}]", delta.tensor,
                                source.to_string(), target[0], curve_->full_width()));
    }
    delta.num_rows = target[0];
    std::vector<float> values(static_cast<std::size_t>(target[0] * columns));
    std::vector<double> bias(static_cast<std::size_t>(target[0]));
    for (std::int64_t first = 0; first < target[0]; first += kSlabRows) {
      const std::int64_t count = std::min(kSlabRows, target[0] - first);
      MINIACC_ASSIGN(const Tensor rows, full.load_rows(delta.tensor, first, count, device_));
      split_bias(curve_->project_against(*base_curve_, rows.view()), columns, first, values, bias);
    }
    delta.computed_dense = keep({target[0], columns}, std::move(values));
    ++lora_.report_.projected;
    MINIACC_RETURN_IF_ERROR(add_projected(delta, std::move(bias)));
    lora_.deltas_.push_back(std::move(delta));
  }
  return {};
}

const ComputedMatrix* LoraBuilder::keep(Shape shape, std::vector<float> values) {
  lora_.computed_.push_back(
      std::make_unique<ComputedMatrix>(ComputedMatrix{shape, std::move(values)}));
  return lora_.computed_.back().get();
}

Status LoraBuilder::check_loss(const LoraDelta& delta, double loss) {
  if (!(loss <= kMaxLoss)) {
    return refuse(
        fmt::format("its change of {} loses {:.2g} of its size when it is carried over to the "
                    "pruned transformer's curve, at most {:.2g} is accepted",
                    delta.tensor, loss, kMaxLoss));
  }
  worst_loss_ = std::max(worst_loss_, loss);
  ++lora_.report_.projected;
  return {};
}

/// The bias takes what the table's constant cannot hold.
Status LoraBuilder::add_projected(const LoraDelta& source, std::vector<double> bias) {
  LoraDelta delta;
  delta.tensor = source.tensor.substr(0, source.tensor.rfind('.')) + ".bias";
  MINIACC_ASSIGN(const Shape target, base_.shape(delta.tensor));
  if (target != Shape({source.num_rows})) {
    return refuse(
        fmt::format("{} is {}, wanted [{}]", delta.tensor, target.to_string(), source.num_rows));
  }
  delta.num_rows = source.num_rows;
  delta.factor = source.factor;
  delta.computed_dense = keep(target, std::vector<float>(bias.begin(), bias.end()));
  lora_.deltas_.push_back(std::move(delta));
  return {};
}

Status LoraBuilder::project_pair(LoraDelta delta) {
  MINIACC_RETURN_IF_ERROR(fit_curve());
  if (delta.down->shape[1] != curve_->full_width()) {
    return refuse(fmt::format(
        "{} is {}, wanted {} columns (a full transformer's) or {} (this "
        "pruned one's)",
        delta.down->name, delta.down->shape.to_string(), curve_->full_width(), curve_->rank()));
  }
  MINIACC_ASSIGN(const Tensor down, load_down(file(), delta, device_));
  MINIACC_ASSIGN(const Tensor up, load_up(file(), delta, device_));
  OpContext ctx{device_};
  MINIACC_RETURN_IF_ERROR(check_loss(delta, curve_->loss(ctx, down.view(), up.view())));
  const std::vector<double> projected = curve_->project(down.view());
  const std::int64_t rank = delta.rank();
  const std::int64_t columns = curve_->rank();
  std::vector<float> values(static_cast<std::size_t>(rank * columns));
  for (std::int64_t i = 0; i < rank * columns; ++i) {
    values[static_cast<std::size_t>(i)] = static_cast<float>(
        projected[static_cast<std::size_t>(i / columns * (columns + 1) + i % columns)]);
  }
  std::vector<double> bias(static_cast<std::size_t>(delta.num_rows));
  for (std::int64_t row = 0; row < delta.num_rows; ++row) {
    for (std::int64_t r = 0; r < rank; ++r) {
      bias[static_cast<std::size_t>(row)] +=
          static_cast<double>(up.f32()[static_cast<std::size_t>(row * rank + r)]) *
          projected[static_cast<std::size_t>(r * (columns + 1) + columns)];
    }
  }
  delta.computed_down = keep({rank, columns}, std::move(values));
  MINIACC_RETURN_IF_ERROR(add_projected(delta, std::move(bias)));
  lora_.deltas_.push_back(std::move(delta));
  return {};
}

Status LoraBuilder::project_dense(LoraDelta delta) {
  const std::int64_t columns = curve_->rank();
  std::vector<float> values(static_cast<std::size_t>(delta.num_rows * columns));
  std::vector<double> bias(static_cast<std::size_t>(delta.num_rows));
  OpContext ctx{device_};
  double loss = 0.0;
  for (std::int64_t first = 0; first < delta.num_rows; first += kSlabRows) {
    const std::int64_t count = std::min(kSlabRows, delta.num_rows - first);
    MINIACC_ASSIGN(const Tensor rows,
                   load_dense_rows(file(), delta, first, count, curve_->full_width(), device_));
    loss = std::max(loss, curve_->loss(ctx, rows.view(), {}));
    split_bias(curve_->project(rows.view()), columns, first, values, bias);
  }
  MINIACC_RETURN_IF_ERROR(check_loss(delta, loss));
  delta.computed_dense = keep({delta.num_rows, columns}, std::move(values));
  delta.dense = nullptr;
  MINIACC_RETURN_IF_ERROR(add_projected(delta, std::move(bias)));
  lora_.deltas_.push_back(std::move(delta));
  return {};
}

}  // namespace miniacc
