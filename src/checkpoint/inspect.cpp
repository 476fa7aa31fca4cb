#include "checkpoint/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "checkpoint/find_components.h"
#include "checkpoint/open_component.h"

namespace miniacc {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr double kMib = 1024.0 * 1024.0;
constexpr std::size_t kListedNames = 20;

/// The first of these that a canonical name contains (or starts with, for "^") names its part.
struct PartRule {
  std::string_view fragment;
  const char* part;
};
constexpr PartRule kTransformerParts[] = {
    {"^token_refiner.", "token refiner"},
    {"adaln", "adaln"},
    {".attn.", "attention"},
    {".mlp.", "mlp"},
    {"^final_layer.", "heads"},
    {"_proj.", "embeddings"},
    {"^time_embedder.", "embeddings"},
    {"norm", "norms"},
};
constexpr PartRule kTextParts[] = {
    {"^visual.", "vision tower"},
    {"^embed_tokens", "embeddings"},
    {".self_attn.", "attention"},
    {".mlp.", "mlp"},
    {"norm", "norms"},
};
constexpr PartRule kVideoParts[] = {
    {"^encoder.", "encoder"}, {"^quant_conv.", "encoder"},     {".attn.", "decoder attention"},
    {".ff.", "decoder mlp"},  {"^decoder.", "decoder, other"},
};
constexpr PartRule kAudioParts[] = {
    {"^encoder.", "encoder"},        {"^pre_block.", "encoder"},
    {"^mean_proj.", "encoder"},      {"^logs_proj.", "encoder"},
    {".ups.", "decoder upsamplers"}, {".resblocks.", "decoder residual blocks"},
};

std::string part_of(Component component, std::string_view name) {
  const std::span<const PartRule> rules =
      component == Component::kTransformer
          ? std::span<const PartRule>(kTransformerParts)
          : (component == Component::kTextEncoder
                 ? std::span<const PartRule>(kTextParts)
                 : (component == Component::kVideoVae ? std::span<const PartRule>(kVideoParts)
                                                      : std::span<const PartRule>(kAudioParts)));
  for (const PartRule& rule : rules) {
    const bool at_start = rule.fragment.starts_with('^');
    const std::string_view fragment = at_start ? rule.fragment.substr(1) : rule.fragment;
    if (at_start ? name.starts_with(fragment) : name.find(fragment) != std::string_view::npos) {
      return rule.part;
    }
  }
  return "other";
}

void add(StorageUse& use, const TensorEntry& entry) {
  ++use.num_tensors;
  use.size_bytes += entry.size_bytes;
}

ComponentReport report_of(const ComponentAnalysis& analysis) {
  ComponentReport report;
  report.info = analysis.info;
  report.config = analysis.config.values;
  report.missing = analysis.plan.missing;
  report.unknown = analysis.plan.unknown;
  report.problems = analysis.plan.problems;
  report.encoder_problems = analysis.plan.encoder_problems;
  std::set<const TensorEntry*> used;
  for (const auto& [name, tensor] : analysis.plan.tensors) {
    StorageUse& part = report.by_part[part_of(report.info.component, name)];
    for (const StoredTensor& stored : tensor.parts) {
      for (const TensorEntry* entry : {stored.values, stored.quantization.scale}) {
        if (entry != nullptr && used.insert(entry).second) {
          add(part, *entry);
        }
      }
    }
  }
  for (const TensorEntry& entry : analysis.file.entries()) {
    add(report.total, entry);
    add(report.by_dtype[std::string(dtype_name(entry.dtype))], entry);
    if (!used.contains(&entry)) {
      add(report.by_part["unused"], entry);
    }
  }
  return report;
}

std::string container_name(ContainerFormat container) {
  return container == ContainerFormat::kGguf ? "GGUF" : "safetensors";
}

std::string text_of(const ComponentReport& report) {
  const CheckpointInfo& info = report.info;
  std::string text =
      fmt::format("{}\n  {}, {} naming, {}{}{}{}\n  {} tensors, {:.1f} MiB\n", info.path.string(),
                  component_name(info.component), naming_name(info.naming),
                  container_name(info.container), info.pruned ? ", pruned (AdaLN curve table)" : "",
                  info.quantization.empty() ? "" : ", " + info.quantization,
                  info.prefix.empty() ? "" : ", names start with " + info.prefix,
                  report.total.num_tensors, static_cast<double>(report.total.size_bytes) / kMib);
  for (const auto& [name, value] : info.dimensions) {
    text += fmt::format("  {:<26} {}\n", name, value);
  }
  const auto add_uses = [&](const char* title, const std::map<std::string, StorageUse>& uses) {
    text += fmt::format("  {}\n", title);
    for (const auto& [name, use] : uses) {
      text += fmt::format("    {:<24} {:>6} tensors {:>12.1f} MiB\n", name, use.num_tensors,
                          static_cast<double>(use.size_bytes) / kMib);
    }
  };
  add_uses("by type", report.by_dtype);
  add_uses("by part", report.by_part);
  const auto add_names = [&](const char* title, const std::vector<std::string>& names) {
    if (names.empty()) {
      return;
    }
    text += fmt::format("  {} ({})\n", title, names.size());
    for (std::size_t i = 0; i < std::min(kListedNames, names.size()); ++i) {
      text += fmt::format("    {}\n", names[i]);
    }
    if (names.size() > kListedNames) {
      text += fmt::format("    and {} more\n", names.size() - kListedNames);
    }
  };
  add_names("missing", report.missing);
  add_names("unknown", report.unknown);
  add_names("wrong", report.problems);
  add_names("wrong with the encoder", report.encoder_problems);
  return text;
}

json json_of(const std::map<std::string, StorageUse>& uses) {
  json result = json::object();
  for (const auto& [name, use] : uses) {
    result[name] = {{"num_tensors", use.num_tensors}, {"size_bytes", use.size_bytes}};
  }
  return result;
}

json json_of(const ComponentReport& report) {
  const CheckpointInfo& info = report.info;
  return {{"path", info.path.string()},
          {"component", component_name(info.component)},
          {"naming", naming_name(info.naming)},
          {"container", container_name(info.container)},
          {"prefix", info.prefix},
          {"pruned", info.pruned},
          {"interleaved_qkv", info.interleaved_qkv},
          {"quantization", info.quantization},
          {"dimensions", info.dimensions},
          {"config", report.config},
          {"num_tensors", report.total.num_tensors},
          {"size_bytes", report.total.size_bytes},
          {"dtypes", json_of(report.by_dtype)},
          {"parts", json_of(report.by_part)},
          {"missing", report.missing},
          {"unknown", report.unknown},
          {"problems", report.problems},
          {"encoder_problems", report.encoder_problems}};
}

}  // namespace

Result<InspectReport> inspect(const fs::path& path) {
  InspectReport report;
  std::vector<fs::path> paths = {path};
  std::error_code ignored;
  // A folder is one component if it holds one tensor file, a model otherwise.
  if (fs::is_directory(path, ignored) && !component_file(path)) {
    MINIACC_ASSIGN(const ModelFiles files, find_components(path));
    paths = {files.transformer, files.text_encoder, files.video_vae, files.audio_vae};
  }
  for (const fs::path& component : paths) {
    MINIACC_ASSIGN(const auto analysis, analyse_component(component));
    report.components.push_back(report_of(*analysis));
  }
  return report;
}

std::string InspectReport::to_text() const {
  std::string text;
  for (const ComponentReport& component : components) {
    text += text.empty() ? "" : "\n";
    text += text_of(component);
  }
  return text;
}

std::string InspectReport::to_json() const {
  json list = json::array();
  for (const ComponentReport& component : components) {
    list.push_back(json_of(component));
  }
  // Names come from files and need not be UTF-8.
  return json{{"components", list}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace miniacc
