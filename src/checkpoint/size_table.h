#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "checkpoint/open_component.h"
#include "checkpoint/synthetic_weights.h"

namespace miniacc {

/// A model folder that names a made-up model: "synthetic:full-int8" as parse_synthetic() takes it,
/// or without a type, which then is bf16. Empty for other names; kInvalidArgument for an unknown
/// size or type.
[[nodiscard]] Result<std::optional<SyntheticSpec>> parse_synthetic_folder(
    const std::filesystem::path& folder);

/// open_component() for planning. Where `path` is a folder with a configuration and no weights, a
/// made-up component of the released sizes takes their place, if the configuration contradicts none
/// of them (kInvalidInput otherwise); `from_config` then is set.
[[nodiscard]] Result<std::unique_ptr<ComponentWeights>> open_sizes(
    const std::filesystem::path& path, Component component, bool& from_config);

}  // namespace miniacc
