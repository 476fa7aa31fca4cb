#include "checkpoint/size_table.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

#include "checkpoint/config.h"
#include "checkpoint/config_claims.h"
#include "checkpoint/schema.h"

namespace miniacc {

namespace fs = std::filesystem;

Result<std::optional<SyntheticSpec>> parse_synthetic_folder(const fs::path& folder) {
  constexpr std::string_view kPrefix = "synthetic:";
  const std::string text = folder.string();
  const bool has_type = text.find('-') != std::string::npos;
  return parse_synthetic(text.starts_with(kPrefix) && !has_type ? text + "-bf16" : text);
}

Result<std::unique_ptr<ComponentWeights>> open_sizes(const fs::path& path, Component component,
                                                     bool& from_config) {
  from_config = false;
  auto opened = open_component(path, component);
  std::error_code ignored;
  if (opened || opened.error().code != ErrorCode::kNotFound || !fs::is_directory(path, ignored)) {
    return opened;
  }
  MINIACC_ASSIGN(const ComponentConfig config, read_component_config(component, path / "none", {}));
  if (config.claims.empty()) {
    return opened;  // nothing describes what should be here
  }
  MINIACC_ASSIGN(auto released, open_synthetic({.size = SyntheticSize::kFull}, component));
  std::map<std::string, Shape, std::less<>> shapes;
  for (const std::string& name : released->names()) {
    MINIACC_ASSIGN(const Shape shape, released->shape(name));
    shapes.emplace(name, shape);
  }
  const auto lookup = [&](std::string_view name) -> const Shape* {
    const auto found = shapes.find(name);
    return found == shapes.end() ? nullptr : &found->second;
  };
  MINIACC_ASSIGN(const Schema schema,
                 read_schema(component, lookup, kReleasedTextLayers, path.string()));
  const std::vector<std::string> wrong = contradictions(config.claims, schema.facts);
  if (!wrong.empty()) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{} has a configuration and no weights, and is not of the released "
                            "sizes, which alone can be planned without headers: {}",
                            path.string(), wrong.front()));
  }
  from_config = true;
  return released;
}

}  // namespace miniacc
