#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "checkpoint/open_component.h"
#include "checkpoint/synthetic_model.h"

namespace miniacc {

/// "synthetic:full" (tiny, small): a model folder that is a table of sizes and no files. Empty for
/// other names; kInvalidArgument for an unknown size.
[[nodiscard]] Result<std::optional<SyntheticSize>> parse_size_table(
    const std::filesystem::path& folder);

/// A component with names, shapes and hyper-parameters but no values: every load is kUnsupported.
[[nodiscard]] Result<std::unique_ptr<ComponentWeights>> size_table(SyntheticSize size,
                                                                   Component component);

/// open_component() for planning. Where `path` is a folder with a configuration and no weights, the
/// released model's sizes take their place, if the configuration contradicts none of them
/// (kInvalidInput otherwise); `from_config` then is set.
[[nodiscard]] Result<std::unique_ptr<ComponentWeights>> open_sizes(
    const std::filesystem::path& path, Component component, bool& from_config);

}  // namespace miniacc
