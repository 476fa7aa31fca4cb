#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "adapters/adapted_weights.h"
#include "checkpoint/open_component.h"
#include "miniacc/lora.h"

namespace miniacc {

/// The adapters of a request and how they meet the transformer.
struct LoraSetup {
  std::vector<LoraRequest> loras;  ///< summed in this order
  bool allow_partial = false;
  std::string mode = "auto";  ///< "merge", "side" or "auto"
  std::filesystem::path adaln_base = {};
  std::string half = {};  ///< of the transformer; empty: told from names around its file
  /// One for each of loras, or none: they are looked up.
  std::vector<AdapterIdentity> identities = {};
  int num_threads = 1;
};

/// kInvalidArgument when `mode` is no way to apply adapters. "auto" is kSide where weights are
/// stored quantised (`quantization` not empty) or products are int8: there a merge rounds changes
/// away and costs a dequantised copy of each layer.
[[nodiscard]] Result<LoraMode> choose_lora_mode(const std::string& mode, Precision precision,
                                                const std::string& quantization);

struct AdaptedTransformer {
  std::unique_ptr<AdaptedWeights> weights;  ///< reads the transformer, which outlives it
  std::vector<LoraReport> reports;
  std::vector<std::string> warnings;
};
/// Opens and checks the adapters (and adaln_base) and puts them in front of the transformer. At
/// least one adapter; at most one brings output heads.
[[nodiscard]] Result<AdaptedTransformer> adapt_transformer(ComponentWeights& transformer,
                                                           const LoraSetup& setup,
                                                           Precision precision);

}  // namespace miniacc
