#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "adapters/lora.h"
#include "adapters/low_rank_rows.h"
#include "core/weight_source.h"

namespace miniacc {

/// A transformer's weights with adapters merged in as they are read:
///   W' = W + Σ strength · alpha / rank · (up · down), the sum in f32, rounded once to the form
///   that
/// is asked for (exact order of operations: low_rank_rows.h). Nothing is kept: memory stays at one
/// layer and the factors of its adapters. Tensors that no adapter changes come from `base` bit for
/// bit. A layer that is stored quantised is dequantised for the merge; for int8 products the merged
/// rows are quantised again with a new scale, under the base's ConvRot rotation.
class AdaptedWeights final : public WeightSource {
 public:
  /// `base` outlives the object. Adapters are summed in the order given.
  AdaptedWeights(WeightSource& base, std::vector<Lora> loras, int num_threads = 1);

  [[nodiscard]] const std::vector<Lora>& loras() const { return loras_; }
  /// True when some adapter changes the tensor.
  [[nodiscard]] bool changes(std::string_view name) const;

  [[nodiscard]] bool has(std::string_view name) const override;
  [[nodiscard]] Result<Shape> shape(std::string_view name) const override;
  [[nodiscard]] std::optional<std::vector<double>> config(std::string_view key) const override;
  [[nodiscard]] Result<Tensor> load(std::string_view name, Device& device) override;
  [[nodiscard]] Result<Tensor> load_rows(std::string_view name, std::int64_t first,
                                         std::int64_t count, Device& device) override;
  [[nodiscard]] Result<OwnedWeightMatrix> load_matrix(std::string_view name, Precision precision,
                                                      Device& device) override;
  /// The base's at strength 0; otherwise also of every adapter's content and strength.
  [[nodiscard]] std::string identity() const override;

 private:
  struct Change {
    const Lora* lora;
    const LoraDelta* delta;
  };
  /// The factors of one change as f32, rows in canonical order.
  struct LoadedChange {
    Change change;
    Tensor up;    ///< [num_rows, rank]; empty for a dense change
    Tensor down;  ///< [rank, columns]
  };

  [[nodiscard]] const std::vector<Change>* find(std::string_view name) const;
  [[nodiscard]] static Result<std::vector<LoadedChange>> load_changes(
      const std::vector<Change>& changes, Device& device);
  /// Adds the changes to rows [first, first + count) of the tensor.
  [[nodiscard]] Status add(const std::vector<LoadedChange>& changes, std::int64_t first,
                           std::int64_t count, std::int64_t columns, float* rows,
                           Device& device) const;
  /// Calls visit(first, rows) for runs of merged rows as f32.
  using SlabVisitor = std::function<void(std::int64_t first, Tensor& rows)>;
  [[nodiscard]] Status for_each_slab(std::string_view name, const std::vector<Change>& changes,
                                     Device& device, const SlabVisitor& visit);

  WeightSource& base_;
  std::vector<Lora> loras_;
  int num_threads_;
  std::map<std::string, std::vector<Change>, std::less<>> changes_;
};

}  // namespace miniacc
