#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapters/head_banks.h"
#include "adapters/known_adapters.h"
#include "core/weight_source.h"
#include "io/tensor_file.h"
#include "miniacc/lora.h"

namespace miniacc {

/// How rows of a stored change lie in the canonical matrix.
enum class DeltaRowOrder {
  kAsStored,
  kSwappedHalves,   ///< stored value first, canonical gate first
  kInterleavedQkv,  ///< stored head by head [head][q|k|v][channel], canonical [Q;K;V]
};

/// Values that no file holds: what became of a change when it was carried over to another form.
struct ComputedMatrix {
  Shape shape;
  std::vector<float> values;
};

/// A change of rows [first_row, first_row + num_rows) of one canonical tensor: a low-rank pair or a
/// dense difference. Entries belong to the Lora's file, computed matrices to the Lora.
struct LoraDelta {
  std::string tensor;
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  DeltaRowOrder order = DeltaRowOrder::kAsStored;
  std::int64_t head_dim = 0;          ///< kInterleavedQkv
  const TensorEntry* down = nullptr;  ///< [rank, in]
  const TensorEntry* up = nullptr;    ///< [num_rows, rank]
  const TensorEntry* dense = nullptr;
  const ComputedMatrix* computed_down = nullptr;   ///< in place of down
  const ComputedMatrix* computed_dense = nullptr;  ///< in place of dense, rows in canonical order
  float factor = 0.0F;  ///< strength · alpha / rank; strength alone for a dense change

  [[nodiscard]] bool is_dense() const { return dense != nullptr || computed_dense != nullptr; }
  /// Of a low-rank change.
  [[nodiscard]] std::int64_t rank() const { return up->shape[1]; }
  /// The stored row that canonical row first_row + `row` is.
  [[nodiscard]] std::int64_t stored_row(std::int64_t row) const;
};

/// kInvalidArgument where path, strength or alpha of a request are no such thing.
[[nodiscard]] Status check_lora_request(const LoraRequest& request);

/// How a file meets a transformer.
struct LoraOptions {
  bool allow_partial = false;  ///< what matches nothing or cannot be taken is a warning
  std::string half = {};       ///< of the transformer: "fl2va", "ref2va"; empty: nothing tells
  /// A full transformer of the same model, whose time MLP carries AdaLN changes of full width over
  /// to a pruned one; null: such changes are rejected.
  WeightSource* adaln_base = nullptr;
  const AdapterIdentity* identity = nullptr;  ///< of the file; null: it is looked up
};

/// An adapter file, checked against the transformer it is to change. Supported and refused forms:
/// docs/adapters.md.
class Lora {
 public:
  /// Reads and checks the whole file: names, pairs, shapes against `base`, scales, and that every
  /// value is finite. All that can be wrong with an adapter is an error here, naming file and
  /// tensors: kInvalidInput; kUnsupported for known methods that are not built in.
  [[nodiscard]] static Result<Lora> open(WeightSource& base, const LoraRequest& request,
                                         const LoraOptions& options = {});

  [[nodiscard]] const TensorFile& file() const { return file_; }
  /// Empty at strength 0.
  [[nodiscard]] const std::vector<LoraDelta>& deltas() const { return deltas_; }
  /// Output heads that take the place of the transformer's; empty for an ordinary adapter and at
  /// strength 0.
  [[nodiscard]] const std::optional<HeadBanks>& head_banks() const { return head_banks_; }
  [[nodiscard]] const LoraReport& report() const { return report_; }
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
  /// Of names, shapes and values: two adapters of one shape differ in nothing else.
  [[nodiscard]] std::uint64_t content_hash() const { return content_hash_; }

 private:
  friend class LoraBuilder;
  explicit Lora(TensorFile file) : file_(std::move(file)) {}

  TensorFile file_;
  std::vector<LoraDelta> deltas_;
  std::vector<std::unique_ptr<ComputedMatrix>> computed_;
  std::optional<HeadBanks> head_banks_;
  LoraReport report_;
  std::vector<std::string> warnings_;
  std::uint64_t content_hash_ = 0;
};

}  // namespace miniacc
