#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/component.h"
#include "checkpoint/make_checkpoint.h"
#include "checkpoint/name_rules.h"
#include "checkpoint/output_files.h"
#include "checkpoint/schema.h"

namespace miniacc {

/// A canonical tensor to be stored in some format, and where its rows come from.
struct CanonicalSource {
  ExpectedTensor tensor;
  RowFill rows;                 ///< canonical
  DType stored = DType::kBF16;  ///< type in the source; kept by WeightStorage::kAsStored
  /// Audio convolutions: the two parts of weight norm. Empty: direction = rows, and magnitude is
  /// their norm, which folds back to the rows but for rounding.
  RowFill direction = {};
  RowFill magnitude = {};
  DType magnitude_stored = DType::kF32;  ///< like `stored`
  bool splits_weight_norm = true;  ///< false: stored whole even where the vendor stores two parts
  /// Largest magnitude of all values, asked for fp8_scaled.
  std::function<Result<float>()> peak = {};
  /// Matrices that the source stores as i8: their values [n, k] and row scales [n] as bytes, in
  /// canonical order, and the ConvRot group. kAsStored copies them into ComfyUI's formats.
  std::function<Result<std::vector<std::byte>>()> int8_values = {};
  std::function<Result<std::vector<std::byte>>()> int8_scales = {};
  std::int64_t int8_rotation_group = 0;
};

/// Sees the int8 form of rows as it is made: `original` and `quantised` (as multiples of the step)
/// [count, columns], `steps` [count]; quantised rows are rotated by `group` (0: not).
struct Int8Slab {
  const ExpectedTensor* tensor = nullptr;
  std::int64_t count = 0;
  std::int64_t columns = 0;
  const float* original = nullptr;
  const float* quantised = nullptr;
  const float* steps = nullptr;
  std::int64_t group = 0;
};
using Int8Observer = std::function<Status(const Int8Slab&)>;

struct LayoutOptions {
  Component component = Component::kTransformer;
  CheckpointFormat format = CheckpointFormat::kOfficial;
  WeightStorage storage = WeightStorage::kBF16;
  std::int64_t head_dim = 0;  ///< of the fused rows that official files interleave
  std::vector<std::int64_t> deepstack_blocks = {};  ///< llama.cpp numbers its mergers by these
  std::int64_t rotation_group = 256;
  Int8Observer int8_observer = {};
};

/// Turns canonical tensors into the stored tensors of a format: names, row order, types and
/// quantisation records (docs/checkpoints.md).
class LayoutBuilder {
 public:
  explicit LayoutBuilder(LayoutOptions options);

  void add(const CanonicalSource& source);
  /// A tensor under its stored name, which gets the format's prefix.
  void add_stored(const std::string& name, DType dtype, const Shape& shape, RowFill fill);
  /// All that was added, and what a file needs once.
  [[nodiscard]] std::vector<OutputTensor> finish();

  [[nodiscard]] Naming naming() const { return naming_; }

 private:
  [[nodiscard]] std::string prefix() const;
  [[nodiscard]] std::string renumbered(const std::string& name) const;
  [[nodiscard]] DType plain_type(const CanonicalSource& source) const;
  void push_content(const std::string& name, DType dtype, const Shape& shape,
                    std::function<Result<std::vector<std::byte>>()> content);
  void add_weight_norm(const CanonicalSource& source);
  void add_patch_slot(const StoredName& stored, const CanonicalSource& source);
  void add_values(const std::string& name, const CanonicalSource& source, const Shape& shape,
                  const RowFill& fill);
  void add_fp8(const std::string& name, const CanonicalSource& source, const Shape& shape,
               const RowFill& fill);
  void add_int8(const std::string& name, const CanonicalSource& source, const Shape& shape,
                const RowFill& fill);
  void add_int8_record(const std::string& stem, std::int64_t group);

  LayoutOptions options_;
  Naming naming_;
  std::vector<OutputTensor> outputs_;
  bool has_fp8_ = false;
};

/// The latent statistics that single files carry as f32 tensors; nothing for empty ones.
void add_latent_statistics(LayoutBuilder& builder, const std::vector<double>& mean,
                           const std::vector<double>& deviation);

/// The folders of the vendor and of diffusers, as opposed to single files.
[[nodiscard]] bool is_folder_format(CheckpointFormat format);
/// The linear layers that quantised files quantise: attention and MLP of the main stack.
[[nodiscard]] bool is_quantised_matrix(Component component, const ExpectedTensor& tensor);

}  // namespace miniacc
