#include "checkpoint/size_table.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "checkpoint/config.h"
#include "checkpoint/config_claims.h"
#include "checkpoint/synthetic_configs.h"
#include "checkpoint/synthetic_tokenizer.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;

std::vector<ExpectedTensor> expected_tensors(const SyntheticModel& model, Component component) {
  switch (component) {
    case Component::kTransformer:
      return transformer_tensors(model.transformer);
    case Component::kTextEncoder:
      return text_encoder_tensors(model.text_encoder);
    case Component::kVideoVae:
      return video_vae_tensors(model.video_vae);
    case Component::kAudioVae:
      return audio_vae_tensors(model.audio_vae);
  }
  MINIACC_REQUIRE(false, "size table: unknown component");
}

class SizeTable final : public ComponentWeights {
 public:
  SizeTable(Component component, std::string name, std::map<std::string, Shape, std::less<>> shapes,
            ConfigMap config)
      : shapes_(std::move(shapes)), config_(std::move(config)) {
    info_.component = component;
    info_.path = std::move(name);
  }

  [[nodiscard]] const CheckpointInfo& info() const override { return info_; }
  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, shape] : shapes_) {
      names.push_back(name);
    }
    return names;
  }
  [[nodiscard]] bool has(std::string_view name) const override {
    return shapes_.find(name) != shapes_.end();
  }
  [[nodiscard]] Result<Shape> shape(std::string_view name) const override {
    const auto found = shapes_.find(name);
    if (found == shapes_.end()) {
      return fail(ErrorCode::kNotFound, fmt::format("{}: has no tensor {}", where(), name));
    }
    return found->second;
  }
  [[nodiscard]] std::optional<std::vector<double>> config(std::string_view key) const override {
    const auto found = config_.find(key);
    return found == config_.end() ? std::nullopt : std::optional(found->second);
  }
  [[nodiscard]] Result<Tensor> load(std::string_view name, Device& /*device*/) override {
    return no_values(name);
  }
  [[nodiscard]] Result<Tensor> load_rows(std::string_view name, std::int64_t /*first*/,
                                         std::int64_t /*count*/, Device& /*device*/) override {
    return no_values(name);
  }
  [[nodiscard]] Result<OwnedWeightMatrix> load_matrix(std::string_view name,
                                                      Precision /*precision*/,
                                                      Device& /*device*/) override {
    return no_values(name);
  }
  [[nodiscard]] std::string identity() const override { return where(); }

 private:
  [[nodiscard]] std::string where() const { return info_.path.string(); }
  [[nodiscard]] tl::unexpected<Error> no_values(std::string_view name) const {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} is a table of sizes without weights; {} cannot be read: only "
                            "--dry-run works with it",
                            where(), name));
  }

  CheckpointInfo info_;
  std::map<std::string, Shape, std::less<>> shapes_;
  ConfigMap config_;
};

std::unique_ptr<ComponentWeights> make_table(const SyntheticModel& model, Component component,
                                             std::string name, ConfigMap config) {
  std::map<std::string, Shape, std::less<>> shapes;
  for (const ExpectedTensor& tensor : expected_tensors(model, component)) {
    shapes.emplace(tensor.name, tensor.shape);
  }
  return std::make_unique<SizeTable>(component, std::move(name), std::move(shapes),
                                     std::move(config));
}

/// Tensors and hyper-parameters of a made-up model, without its values.
Result<std::unique_ptr<ComponentWeights>> make_table(SyntheticSize size, Component component,
                                                     std::string name) {
  const SyntheticModel model = synthetic_model(size, synthetic_tokenizer().vocab_size);
  MINIACC_ASSIGN(ComponentConfig config,
                 read_component_config(component, fs::path(name) / "config",
                                       {{"config", single_file_config(model, component)}}));
  return make_table(model, component, std::move(name), std::move(config.values));
}

}  // namespace

Result<std::optional<SyntheticSize>> parse_size_table(const fs::path& folder) {
  constexpr std::string_view kPrefix = "synthetic:";
  const std::string text = folder.string();
  if (!text.starts_with(kPrefix)) {
    return std::optional<SyntheticSize>();
  }
  const auto size = parse_synthetic_size(std::string_view(text).substr(kPrefix.size()));
  if (!size) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("there is no size table '{}'; there are synthetic:full, synthetic:small "
                    "and synthetic:tiny",
                    text));
  }
  return size;
}

Result<std::unique_ptr<ComponentWeights>> size_table(SyntheticSize size, Component component) {
  const char* name = size == SyntheticSize::kFull    ? "synthetic:full"
                     : size == SyntheticSize::kSmall ? "synthetic:small"
                                                     : "synthetic:tiny";
  return make_table(size, component, name);
}

Result<std::unique_ptr<ComponentWeights>> open_sizes(const fs::path& path, Component component,
                                                     bool& from_config) {
  from_config = false;
  auto opened = open_component(path, component);
  std::error_code ignored;
  if (opened || opened.error().code != ErrorCode::kNotFound || !fs::is_directory(path, ignored)) {
    return opened;
  }
  MINIACC_ASSIGN(ComponentConfig config, read_component_config(component, path / "none", {}));
  if (config.claims.empty()) {
    return opened;  // nothing describes what should be here
  }
  const SyntheticModel model = synthetic_model(SyntheticSize::kFull, 0);
  MINIACC_ASSIGN(auto table, make_table(SyntheticSize::kFull, component, path.string()));
  std::map<std::string, Shape, std::less<>> shapes;
  for (const ExpectedTensor& tensor : expected_tensors(model, component)) {
    shapes.emplace(tensor.name, tensor.shape);
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
  return table;
}

}  // namespace miniacc
