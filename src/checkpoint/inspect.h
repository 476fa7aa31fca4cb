#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/component.h"
#include "checkpoint/config.h"
#include "core/error.h"

namespace miniacc {

struct StorageUse {
  std::int64_t num_tensors = 0;
  std::size_t size_bytes = 0;
};

/// What one component file (or set of shards) holds.
struct ComponentReport {
  CheckpointInfo info;
  StorageUse total;
  std::map<std::string, StorageUse> by_dtype;  ///< as stored: "bf16", "q4_k", ...
  std::map<std::string, StorageUse> by_part;   ///< "attention", "mlp", "adaln", ..., "unused"
  ConfigMap config;
  std::vector<std::string> missing;
  std::vector<std::string> unknown;
  std::vector<std::string> problems;
  std::vector<std::string> encoder_problems;  ///< why a VAE decodes but does not encode
};

struct InspectReport {
  std::vector<ComponentReport> components;

  /// Lines for people.
  [[nodiscard]] std::string to_text() const;
  /// One JSON object: {"components": [...]}.
  [[nodiscard]] std::string to_json() const;
};

/// Describes a component file, a component folder, or every component of a model folder. Reads
/// headers only. Missing, unknown and ill-shaped tensors are findings of the report; an Error means
/// that the file cannot be read or is of a kind this build does not know.
[[nodiscard]] Result<InspectReport> inspect(const std::filesystem::path& path);

}  // namespace miniacc
