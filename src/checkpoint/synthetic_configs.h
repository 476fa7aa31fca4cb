#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/make_checkpoint.h"
#include "checkpoint/model_half.h"

namespace miniacc {

/// One JSON file of a folder layout; `path` is relative to the component's folder.
struct ConfigFile {
  std::filesystem::path path;
  nlohmann::ordered_json content;
};
/// What a component's folder says about it in kOfficial or kDiffusers. Latent statistics are left
/// out where the model has none.
[[nodiscard]] std::vector<ConfigFile> component_configs(const SyntheticModel& model,
                                                        Component component,
                                                        CheckpointFormat format);
/// The folder of a component in kOfficial or kDiffusers, below the model's.
[[nodiscard]] std::filesystem::path component_folder(Component component, CheckpointFormat format);
/// model_index.json of kOfficial or kDiffusers, with the half where it is known.
[[nodiscard]] nlohmann::ordered_json model_index(CheckpointFormat format,
                                                 std::optional<ModelHalf> half);

/// Writes the JSON files of a folder layout (kOfficial or kDiffusers).
[[nodiscard]] Status write_synthetic_configs(const SyntheticModel& model, CheckpointFormat format,
                                             const std::filesystem::path& folder);

/// What a single file says about itself under metadata key "config": the diffusers config.json.
[[nodiscard]] nlohmann::ordered_json single_file_json(const SyntheticModel& model,
                                                      Component component);
[[nodiscard]] std::string single_file_config(const SyntheticModel& model, Component component);

}  // namespace miniacc
