#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/component.h"
#include "checkpoint/config_claims.h"
#include "core/error.h"

namespace miniacc {

/// Hyper-parameters by canonical key (docs/checkpoints.md); lists are flattened.
using ConfigMap = std::map<std::string, std::vector<double>, std::less<>>;

struct ComponentConfig {
  ConfigMap values;
  /// Where a value comes from: "<file> says <key>", by canonical key.
  std::map<std::string, std::string, std::less<>> sources;
  std::vector<ConfigClaim> claims;  ///< what is said about sizes, to compare with the tensors
  std::string class_name;           ///< `_class_name` of config.json, "" when there is none
};

/// Reads what describes `component` beside `file`: config.json (official and diffusers spellings),
/// metadata.json and source/config.json; the JSON under metadata key "config" of a single file;
/// llama.cpp keys. Files that describe another component are passed over. kInvalidInput names a
/// file that is not JSON, and file and key of a value that no model can have (not a finite number,
/// an empty list, out of range); kIo a file that cannot be read, with the reason.
[[nodiscard]] Result<ComponentConfig> read_component_config(
    Component component, const std::filesystem::path& file,
    const std::map<std::string, std::string>& metadata);

}  // namespace miniacc
