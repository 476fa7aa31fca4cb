#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/make_checkpoint.h"

namespace miniacc {

/// Writes the JSON files of a folder layout (kOfficial or kDiffusers).
[[nodiscard]] Status write_synthetic_configs(const SyntheticModel& model, CheckpointFormat format,
                                             const std::filesystem::path& folder);

/// What a single file says about itself under metadata key "config": the diffusers config.json.
[[nodiscard]] std::string single_file_config(const SyntheticModel& model, Component component);

}  // namespace miniacc
