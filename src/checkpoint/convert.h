#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/component.h"
#include "checkpoint/int8_error.h"
#include "checkpoint/make_checkpoint.h"
#include "core/cancel_token.h"
#include "core/error.h"

namespace miniacc {

struct ConvertOptions {
  std::filesystem::path in = {};   ///< model folder, component folder or component file
  std::filesystem::path out = {};  ///< folder to make, or a file for one component as a single file
  CheckpointFormat format = CheckpointFormat::kComfy;
  WeightStorage storage = WeightStorage::kAsStored;
  std::optional<Component> component = std::nullopt;  ///< only this one of a model folder
  std::int64_t rank = 8;                              ///< kComfyPruned: columns of the curve table
  double max_rel_resid = 1e-2;                        ///< kComfyPruned: of any layer over the curve
  std::int64_t rotation_group = 256;                  ///< kInt8ConvRot
  /// Refuses a source that is quantised and measures what int8 does to every layer.
  bool measure_int8 = false;
  int num_threads = 1;
  const CancelToken* cancel = nullptr;
  std::function<void(std::size_t done, std::size_t total)> progress = {};  ///< bytes
};

/// How well the curve table of a pruned form stands for the time MLP.
struct PruneReport {
  std::int64_t rank = 0;
  std::int64_t grid = 0;
  double curve_rel_resid = 0.0;
  double worst_rel_resid = 0.0;  ///< over the modulation of a layer, as stored
  std::string worst_layer;
};

struct ConvertedComponent {
  Component component = Component::kTransformer;
  std::filesystem::path in;
  std::filesystem::path out;
  std::string from;     ///< "official, bf16" and the like
  bool copied = false;  ///< it has that form already: the same bytes
  std::int64_t num_tensors = 0;
  std::size_t size_bytes = 0;
  std::optional<PruneReport> prune;
  std::vector<Int8Error> int8_errors;
  std::vector<std::string> notes;
};

/// Rewrites a model or one component in another layout (docs/tools.md). Values keep their bits
/// where the stored type stays; f32, f16 and bf16 go through f32. Streams tensor by tensor: memory
/// stays at a few slabs, and one layer where int8 values are copied. Everything goes to a temporary
/// name that is renamed at the end.
/// kInvalidArgument: `out` exists, or the format has no such storage. kInvalidInput: the source is
/// damaged, is quantised where it may not be, or a layer does not fit the curve table.
[[nodiscard]] Result<std::vector<ConvertedComponent>> convert_checkpoint(
    const ConvertOptions& options);

}  // namespace miniacc
