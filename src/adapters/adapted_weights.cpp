#include "adapters/adapted_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "adapters/delta_values.h"
#include "core/float_convert.h"
#include "kernels/linear.h"

namespace miniacc {
namespace {

/// Rows merged at a time when the matrix changes its type on the way.
constexpr std::int64_t kSlabValues = std::int64_t{1} << 22;

constexpr std::string_view kQkvSuffix = ".attn.qkv_proj.weight";

/// The matrices whose changes may stay products of their own: all that an activation with as many
/// rows as the clip goes through.
bool is_block_matrix(std::string_view name) {
  return name.ends_with(kQkvSuffix) || name.ends_with(".attn.out_proj.weight") ||
         name.ends_with(".mlp.fc1.weight") || name.ends_with(".mlp.fc2.weight");
}

bool is_modulation_tensor(std::string_view name) {
  return name.find("adaln_proj") != std::string_view::npos || name.starts_with("time_embedder.");
}

}  // namespace

AdaptedWeights::AdaptedWeights(WeightSource& base, std::vector<Lora> loras, int num_threads,
                               LoraMode mode)
    : base_(base), loras_(std::move(loras)), num_threads_(num_threads), mode_(mode) {
  for (const Lora& lora : loras_) {
    for (const LoraDelta& delta : lora.deltas()) {
      changes_[delta.tensor].push_back({&lora, &delta});
    }
  }
}

const std::vector<AdaptedWeights::Change>* AdaptedWeights::find(std::string_view name) const {
  const auto found = changes_.find(name);
  return found == changes_.end() ? nullptr : &found->second;
}

bool AdaptedWeights::changes(std::string_view name) const { return find(name) != nullptr; }
bool AdaptedWeights::changes_modulation() const {
  return std::any_of(changes_.begin(), changes_.end(),
                     [](const auto& change) { return is_modulation_tensor(change.first); });
}
bool AdaptedWeights::has(std::string_view name) const { return base_.has(name); }
Result<Shape> AdaptedWeights::shape(std::string_view name) const { return base_.shape(name); }
std::optional<std::vector<double>> AdaptedWeights::config(std::string_view key) const {
  return base_.config(key);
}

Result<Tensor> AdaptedWeights::load(std::string_view name, Device& device) {
  MINIACC_ASSIGN(Tensor tensor, base_.load(name, device));
  if (const auto* changes = find(name)) {
    const std::int64_t rows = tensor.shape()[0];
    MINIACC_ASSIGN(const auto loaded, load_changes(*changes, device));
    MINIACC_RETURN_IF_ERROR(
        add(loaded, 0, rows, tensor.shape().num_elements() / rows, tensor.f32().data(), device));
  }
  return tensor;
}

Result<Tensor> AdaptedWeights::load_rows(std::string_view name, std::int64_t first,
                                         std::int64_t count, Device& device) {
  MINIACC_ASSIGN(Tensor tensor, base_.load_rows(name, first, count, device));
  const auto* changes = find(name);
  if (changes != nullptr && count > 0) {
    MINIACC_ASSIGN(const auto loaded, load_changes(*changes, device));
    MINIACC_RETURN_IF_ERROR(add(loaded, first, count, tensor.shape().num_elements() / count,
                                tensor.f32().data(), device));
  }
  return tensor;
}

Result<OwnedWeightMatrix> AdaptedWeights::load_matrix(std::string_view name, Precision precision,
                                                      Device& device) {
  const auto* changes = find(name);
  if (changes == nullptr) {
    return base_.load_matrix(name, precision, device);
  }
  return mode_ == LoraMode::kSide && is_block_matrix(name)
             ? load_with_side_products(name, *changes, precision, device)
             : load_merged(name, *changes, precision, device);
}

Result<OwnedWeightMatrix> AdaptedWeights::load_with_side_products(
    std::string_view name, const std::vector<Change>& changes, Precision precision,
    Device& device) {
  std::vector<Change> dense;
  std::copy_if(changes.begin(), changes.end(), std::back_inserter(dense),
               [](const Change& change) { return change.delta->is_dense(); });
  OwnedWeightMatrix matrix;
  if (dense.empty()) {
    MINIACC_ASSIGN(matrix, base_.load_matrix(name, precision, device));
  } else {
    MINIACC_ASSIGN(matrix, load_merged(name, dense, precision, device));
  }
  MINIACC_ASSIGN(matrix.low_rank, side_products(name, changes, precision, device));
  return matrix;
}

Result<std::vector<LowRankDelta>> AdaptedWeights::side_products(std::string_view name,
                                                                const std::vector<Change>& changes,
                                                                Precision precision,
                                                                Device& device) {
  std::vector<LowRankDelta> all;
  for (const Change& change : changes) {
    if (!change.delta->is_dense()) {
      MINIACC_ASSIGN(auto products,
                     load_side_products(change.lora->file(), *change.delta,
                                        name.ends_with(kQkvSuffix), precision, device));
      std::move(products.begin(), products.end(), std::back_inserter(all));
    }
  }
  return all;
}

std::size_t AdaptedWeights::side_bytes() const {
  constexpr std::size_t kAlignment = 256;
  std::size_t bytes = 0;
  for (const auto& [name, changes] : changes_) {
    const auto shape = base_.shape(name);
    if (mode_ != LoraMode::kSide || !is_block_matrix(name) || !shape || (*shape)[0] == 0) {
      continue;
    }
    const std::int64_t columns = shape->num_elements() / (*shape)[0];
    for (const Change& change : changes) {
      if (!change.delta->is_dense()) {
        // Three products where one delta covers q, k and v: each has a factor `down` of its own.
        bytes += static_cast<std::size_t>(change.delta->rank() *
                                          (3 * columns + change.delta->num_rows)) *
                     sizeof(float) +
                 6 * kAlignment;
      }
    }
  }
  return bytes;
}

Result<MatrixExtras> AdaptedWeights::read_matrix(std::string_view name, Precision precision,
                                                 int num_threads, Device& scratch,
                                                 TensorView values, TensorView row_scale) {
  const auto* changes = find(name);
  if (changes == nullptr) {
    return base_.read_matrix(name, precision, num_threads, scratch, values, row_scale);
  }
  const bool beside = mode_ == LoraMode::kSide && is_block_matrix(name) &&
                      std::none_of(changes->begin(), changes->end(),
                                   [](const Change& change) { return change.delta->is_dense(); });
  if (!beside) {
    return WeightSource::read_matrix(name, precision, num_threads, scratch, values, row_scale);
  }
  MINIACC_ASSIGN(MatrixExtras extras,
                 base_.read_matrix(name, precision, num_threads, scratch, values, row_scale));
  MINIACC_ASSIGN(extras.low_rank, side_products(name, *changes, precision, scratch));
  return extras;
}

Result<OwnedWeightMatrix> AdaptedWeights::load_merged(std::string_view name,
                                                      const std::vector<Change>& changes,
                                                      Precision precision, Device& device) {
  MINIACC_ASSIGN(const Shape shape, base_.shape(name));
  const std::int64_t columns = shape.num_elements() / shape[0];
  OwnedWeightMatrix matrix;
  switch (precision) {
    case Precision::kF32: {
      MINIACC_ASSIGN(matrix, base_.load_matrix(name, precision, device));
      MINIACC_ASSIGN(const auto loaded, load_changes(changes, device));
      MINIACC_RETURN_IF_ERROR(
          add(loaded, 0, shape[0], columns, matrix.values.f32().data(), device));
      return matrix;
    }
    case Precision::kBF16: {
      MINIACC_ASSIGN(matrix.values, try_empty_tensor(device, {shape[0], columns}, DType::kBF16));
      auto* out = matrix.values.view().as<std::uint16_t>();
      MINIACC_RETURN_IF_ERROR(
          for_each_slab(name, changes, device, [&](std::int64_t first, Tensor& rows) {
            const auto values = rows.f32();
            std::transform(values.begin(), values.end(), out + first * columns, float_to_bf16);
          }));
      return matrix;
    }
    case Precision::kInt8: {
      // The base's own int8 form tells whether this layer is rotated, and its memory is reused.
      MINIACC_ASSIGN(matrix, base_.load_matrix(name, precision, device));
      const OpContext ctx{device, num_threads_};
      OpContext op = ctx;
      MINIACC_RETURN_IF_ERROR(
          for_each_slab(name, changes, device, [&](std::int64_t first, Tensor& rows) {
            const std::int64_t count = rows.shape()[0];
            const TensorView slab(rows.view().data, {count, columns}, DType::kF32);
            if (matrix.rotation_group != 0) {
              ops::rotate_rows(op, slab, matrix.rotation_group);
            }
            ops::quantize_rows(op, matrix.values.view().narrow(0, first, count),
                               matrix.row_scale.view().narrow(0, first, count), slab);
          }));
      return matrix;
    }
  }
  MINIACC_REQUIRE(false, "load_matrix: unknown precision");
}

std::string AdaptedWeights::identity() const {
  std::string text = base_.identity();
  for (const Lora& lora : loras_) {
    if (lora.deltas().empty() && !lora.head_banks()) {
      continue;  // strength 0: the base's weights
    }
    // Scales are in the factors; strength is not enough where the user overrides alpha.
    std::uint64_t hash = lora.content_hash();
    for (const LoraDelta& delta : lora.deltas()) {
      hash = (hash ^ std::bit_cast<std::uint32_t>(delta.factor)) * 0x100000001B3ULL;
      hash ^= hash >> 32;
    }
    text += fmt::format("+{:016x}{}", hash, mode_ == LoraMode::kSide ? "s" : "");
  }
  return text;
}

Result<std::vector<AdaptedWeights::LoadedChange>> AdaptedWeights::load_changes(
    const std::vector<Change>& changes, Device& device) {
  std::vector<LoadedChange> loaded;
  for (const Change& change : changes) {
    LoadedChange& result = loaded.emplace_back(LoadedChange{change, {}, {}});
    const LoraDelta& delta = *change.delta;
    if (delta.is_dense()) {
      continue;  // as large as the weight: read slab by slab
    }
    MINIACC_ASSIGN(result.down, load_down(change.lora->file(), delta, device));
    MINIACC_ASSIGN(result.up, load_up(change.lora->file(), delta, device));
  }
  return loaded;
}

Status AdaptedWeights::add(const std::vector<LoadedChange>& changes, std::int64_t first,
                           std::int64_t count, std::int64_t columns, float* rows,
                           Device& device) const {
  std::vector<DeltaRows> deltas;
  std::vector<Tensor> dense;
  for (const LoadedChange& loaded : changes) {
    const LoraDelta& delta = *loaded.change.delta;
    const std::int64_t begin = std::max(first, delta.first_row);
    const std::int64_t end = std::min(first + count, delta.first_row + delta.num_rows);
    if (begin >= end) {
      continue;
    }
    const std::int64_t local = begin - delta.first_row;
    DeltaRows part{.begin = begin - first, .end = end - first, .scale = delta.factor};
    if (delta.is_dense()) {
      MINIACC_ASSIGN(Tensor values, load_dense_rows(loaded.change.lora->file(), delta, local,
                                                    end - begin, columns, device));
      part.dense = values.f32().data();
      dense.push_back(std::move(values));
    } else {
      part.rank = delta.rank();
      part.up = loaded.up.f32().data() + local * part.rank;
      part.down = loaded.down.f32().data();
    }
    deltas.push_back(part);
  }
  add_low_rank_rows(OpContext{device, num_threads_}, rows, count, columns, deltas);
  return {};
}

Status AdaptedWeights::for_each_slab(std::string_view name, const std::vector<Change>& changes,
                                     Device& device, const SlabVisitor& visit) {
  MINIACC_ASSIGN(const Shape shape, base_.shape(name));
  const std::int64_t columns = shape.num_elements() / shape[0];
  const std::int64_t slab_rows = std::clamp<std::int64_t>(kSlabValues / columns, 1, shape[0]);
  MINIACC_ASSIGN(const auto loaded, load_changes(changes, device));
  for (std::int64_t first = 0; first < shape[0]; first += slab_rows) {
    const std::int64_t count = std::min(slab_rows, shape[0] - first);
    MINIACC_ASSIGN(Tensor rows, base_.load_rows(name, first, count, device));
    MINIACC_RETURN_IF_ERROR(add(loaded, first, count, columns, rows.f32().data(), device));
    visit(first, rows);
  }
  return {};
}

}  // namespace miniacc
