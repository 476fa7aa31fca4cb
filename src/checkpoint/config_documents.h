#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/component.h"
#include "core/error.h"

namespace miniacc {

/// One JSON object that describes a component, and how messages name it.
struct ConfigDocument {
  std::string where;
  bool in_file = false;  ///< metadata of the tensor file itself
  nlohmann::json content;
};
/// The documents that read_component_config() reads for `component`, in the order in which they
/// are asked; those of other components are passed over.
[[nodiscard]] Result<std::vector<ConfigDocument>> read_config_documents(
    Component component, const std::filesystem::path& file,
    const std::map<std::string, std::string>& metadata);

/// How the configurations of the field spell a canonical key, as JSON pointers; the last one is
/// diffusers' where the spellings differ.
[[nodiscard]] std::vector<std::string> config_pointers(Component component,
                                                       std::string_view canonical);

}  // namespace miniacc
