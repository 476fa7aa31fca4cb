#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adapters/known_adapters.h"
#include "core/error.h"
#include "io/tensor_file.h"

namespace miniacc {

/// Where a file's scale comes from, in the order in which places are asked.
enum class AlphaSource {
  kGiven,         ///< the user's alpha: the only thing that beats the file
  kTensors,       ///< `.alpha` tensors; modules without one have scale 1
  kMetadata,      ///< metadata "alpha"
  kTrainer,       ///< "lora_alpha" of the metadata, of a PEFT blob in it or of adapter_config.json
  kKnownContent,  ///< table of known files, by SHA-256
  kKnownName,     ///< table of known files, by file name
  kDefault,       ///< alpha = rank
};
[[nodiscard]] std::string_view alpha_source_name(AlphaSource source);

/// How the scale of each module of one file is found.
struct AlphaRule {
  AlphaSource source = AlphaSource::kDefault;
  std::optional<double> alpha;       ///< for every module without a pattern
  std::optional<std::int64_t> rank;  ///< what the trainer says; must be the rank of the tensors
  std::vector<std::pair<std::string, double>> alpha_pattern;  ///< by end of the module's name
  std::vector<std::pair<std::string, double>> rank_pattern;
  bool rank_stabilized = false;  ///< alpha / sqrt(rank)
  std::string warning;           ///< what the user must know about this choice; may be empty

  /// alpha / rank of one module; `rank` is that of its tensors and `alpha_tensor` its own `.alpha`.
  /// kInvalidInput when the trainer's rank is another one: its alpha then belongs to something else
  /// than these tensors (spec adapters.md §13). The sentence does not name the file.
  [[nodiscard]] Result<double> scale(const std::string& module, std::int64_t rank,
                                     std::optional<double> alpha_tensor) const;
};

/// What the choice depends on beside the file.
struct AlphaQuery {
  std::optional<double> given = std::nullopt;  ///< the user's alpha
  bool has_alpha_tensors = false;              ///< any `.alpha` in the file
  bool like_lightx2v = false;  ///< names and rank of the files whose scale is per release
  const AdapterIdentity* identity = nullptr;  ///< of the file, where it was looked up
};
/// kInvalidInput when a place that must be asked holds something that is no alpha.
[[nodiscard]] Result<AlphaRule> find_alpha_rule(const TensorFile& file, const AlphaQuery& query);

}  // namespace miniacc
