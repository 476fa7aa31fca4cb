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

/// How low-rank changes of the linear layers of blocks and refiner reach the products. All others
/// (AdaLN, time embedding, patch projections, heads, dense changes) are merged in both.
enum class LoraMode {
  kMerge,  ///< added to the weights as they are read
  kSide,   ///< products of their own beside the stored weights (LowRankDelta)
};

/// A transformer's weights with adapters applied as they are read.
///   kMerge: W' = W + Σ strength · alpha / rank · (up · down), the sum in f32, rounded once to the
///     form that is asked for (exact order of operations: low_rank_rows.h). Nothing is kept: memory
///     stays at one layer and the factors of its adapters. A layer that is stored quantised is
///     dequantised for the merge; for int8 products the merged rows are quantised again with a new
///     scale, under the base's ConvRot rotation.
///   kSide: load_matrix gives the base's matrix, bit for bit, and the changes as its low_rank list,
///     one thin product for each of q, k and v. Factors stay bf16 where the file's are and the
///     product is no f32 one; else they are f32. load and load_rows give merged rows in both modes.
/// Tensors that no adapter changes come from `base` bit for bit.
class AdaptedWeights final : public WeightSource {
 public:
  /// `base` outlives the object. Adapters are summed in the order given.
  AdaptedWeights(WeightSource& base, std::vector<Lora> loras, int num_threads = 1,
                 LoraMode mode = LoraMode::kMerge);

  [[nodiscard]] const std::vector<Lora>& loras() const { return loras_; }
  /// True when some adapter changes the tensor.
  [[nodiscard]] bool changes(std::string_view name) const;
  /// True when some adapter changes AdaLN or the time embedding, and with them every modulation.
  [[nodiscard]] bool changes_modulation() const;
  [[nodiscard]] LoraMode mode() const { return mode_; }
  /// An upper bound on the bytes of all side products together; 0 in kMerge.
  [[nodiscard]] std::size_t side_bytes() const;

  [[nodiscard]] bool has(std::string_view name) const override;
  [[nodiscard]] Result<Shape> shape(std::string_view name) const override;
  [[nodiscard]] std::optional<std::vector<double>> config(std::string_view key) const override;
  [[nodiscard]] Result<Tensor> load(std::string_view name, Device& device) override;
  [[nodiscard]] Result<Tensor> load_rows(std::string_view name, std::int64_t first,
                                         std::int64_t count, Device& device) override;
  [[nodiscard]] Result<OwnedWeightMatrix> load_matrix(std::string_view name, Precision precision,
                                                      Device& device) override;
  [[nodiscard]] Result<MatrixExtras> read_matrix(std::string_view name, Precision precision,
                                                 int num_threads, Device& scratch,
                                                 TensorView values, TensorView row_scale) override;
  /// The base's at strength 0; otherwise also of every adapter's content, strength and mode.
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
  [[nodiscard]] Result<OwnedWeightMatrix> load_merged(std::string_view name,
                                                      const std::vector<Change>& changes,
                                                      Precision precision, Device& device);
  [[nodiscard]] Result<OwnedWeightMatrix> load_with_side_products(
      std::string_view name, const std::vector<Change>& changes, Precision precision,
      Device& device);
  /// The products beside a matrix, of all changes that are not dense.
  [[nodiscard]] static Result<std::vector<LowRankDelta>> side_products(
      std::string_view name, const std::vector<Change>& changes, Precision precision,
      Device& device);
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
  LoraMode mode_;
  std::map<std::string, std::vector<Change>, std::less<>> changes_;
};

}  // namespace miniacc
