#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

/// A change of rows [first_row, first_row + num_rows) of one canonical tensor: a low-rank pair or a
/// dense difference. Entries belong to the Lora's file.
struct LoraDelta {
  std::string tensor;
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  DeltaRowOrder order = DeltaRowOrder::kAsStored;
  std::int64_t head_dim = 0;          ///< kInterleavedQkv
  const TensorEntry* down = nullptr;  ///< [rank, in]
  const TensorEntry* up = nullptr;    ///< [num_rows, rank]
  const TensorEntry* dense = nullptr;
  float factor = 0.0F;  ///< strength · alpha / rank; strength alone for a dense change

  /// The stored row that canonical row first_row + `row` is.
  [[nodiscard]] std::int64_t stored_row(std::int64_t row) const;
};

/// An adapter file, checked against the transformer it is to change. Supported and refused forms:
/// docs/adapters.md.
class Lora {
 public:
  /// Reads and checks the whole file: names, pairs, shapes against `base`, scales, and that every
  /// value is finite. All that can be wrong with an adapter is an error here, naming file and
  /// tensors: kInvalidInput; kUnsupported for known methods that are not built in.
  /// `allow_partial`: tensors that match nothing, or that this form of the checkpoint cannot take,
  /// are a warning as long as something matches. The request's numbers are finite (contract).
  [[nodiscard]] static Result<Lora> open(const WeightSource& base, const LoraRequest& request,
                                         bool allow_partial = false);

  [[nodiscard]] const TensorFile& file() const { return file_; }
  /// Empty at strength 0.
  [[nodiscard]] const std::vector<LoraDelta>& deltas() const { return deltas_; }
  [[nodiscard]] const LoraReport& report() const { return report_; }
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
  /// Of names, shapes and values: two adapters of one shape differ in nothing else.
  [[nodiscard]] std::uint64_t content_hash() const { return content_hash_; }

 private:
  friend class LoraBuilder;
  explicit Lora(TensorFile file) : file_(std::move(file)) {}

  TensorFile file_;
  std::vector<LoraDelta> deltas_;
  LoraReport report_;
  std::vector<std::string> warnings_;
  std::uint64_t content_hash_ = 0;
};

}  // namespace miniacc
