#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/component.h"
#include "checkpoint/plan.h"
#include "core/weight_source.h"

namespace miniacc {

/// A component's weights together with what was recognised about them.
class ComponentWeights : public WeightSource {
 public:
  [[nodiscard]] virtual const CheckpointInfo& info() const = 0;
  /// Sizes and times of the files, for keys of caches: changes where a file was written again.
  [[nodiscard]] virtual std::string stamp() const { return {}; }
  /// All canonical names, sorted.
  [[nodiscard]] virtual std::vector<std::string> names() const = 0;
};

/// Opens a component: a .safetensors file, a *.safetensors.index.json, a .gguf file, or a folder
/// that holds one of these (with config.json). Kind, naming and row order are recognised from
/// names, shapes and, where these do not tell, content. Every tensor must be known, every needed
/// one there, and all shapes must fit each other: kInvalidInput otherwise, with the first five
/// names and the count. What is wrong with the encoder of a VAE alone is no error here: reading a
/// tensor of that encoder is kInvalidInput saying it. With `wanted`, a file of another kind is
/// kInvalidInput saying what it is. Reads headers only (and a few rows for the content test).
[[nodiscard]] Result<std::unique_ptr<ComponentWeights>> open_component(
    const std::filesystem::path& path, std::optional<Component> wanted = std::nullopt);

/// The tensor file a component folder holds (through `source/` in the official video VAE);
/// `path` itself when it is a file. kNotFound says what was looked for.
[[nodiscard]] Result<std::filesystem::path> component_file(const std::filesystem::path& path);

/// The canonical shapes of a component from its header alone: not even the content test for the
/// order of fused rows is made, and what is missing or unknown is no error. kInvalidInput when the
/// file is another component than `wanted`.
[[nodiscard]] Result<std::map<std::string, Shape, std::less<>>> read_component_shapes(
    const std::filesystem::path& path, Component wanted);

/// Everything that can be said about a file without failing on what is missing or unknown in it.
struct ComponentAnalysis {
  TensorFile file;
  CheckpointInfo info;
  QuantizationRecords quantization;
  ComponentConfig config;
  Plan plan;
};
[[nodiscard]] Result<std::unique_ptr<ComponentAnalysis>> analyse_component(
    const std::filesystem::path& path);

}  // namespace miniacc
