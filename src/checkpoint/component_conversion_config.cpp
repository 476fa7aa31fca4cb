#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "checkpoint/component_conversion.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

/// Keys that official and diffusers configurations spell differently and nothing here reads.
constexpr std::pair<const char*, const char*> kAliases[] = {
    {"space_down", "spatial_downsample_factors"},
    {"time_down", "temporal_downsample_factors"},
    {"num_res_blocks", "layers_per_block"},
    {"padding_mode", "spatial_padding_mode"},
};

/// `value` in the form that `sample` has: nested lists stay nested, whole numbers stay whole.
/// A list inside lists takes as many as it has; one alone takes all.
ordered_json shaped_like(const ordered_json& sample, const std::vector<double>& values,
                         std::size_t& next, int depth = 0) {
  if (sample.is_array() && !sample.empty() && sample.front().is_array()) {
    ordered_json list = ordered_json::array();
    for (const auto& part : sample) {
      list.push_back(shaped_like(part, values, next, depth + 1));
    }
    return list;
  }
  const auto number = [&](std::size_t i) {
    const double value = values.at(i);
    return value == std::floor(value) && std::fabs(value) < 1e15
               ? ordered_json(static_cast<std::int64_t>(value))
               : ordered_json(value);
  };
  if (sample.is_array() || (sample.is_null() && values.size() > 1)) {
    const std::size_t count = depth == 0 ? values.size() : sample.size();
    ordered_json list = ordered_json::array();
    for (std::size_t i = 0; i < count && next < values.size(); ++i) {
      list.push_back(number(next++));
    }
    return list;
  }
  return number(next++);
}

std::size_t count_numbers(const ordered_json& value) {
  if (!value.is_array()) {
    return 1;
  }
  std::size_t count = 0;
  for (const auto& part : value) {
    count += count_numbers(part);
  }
  return count;
}

}  // namespace

/// Takes over what the source's configurations say: keys of the same name, then the values that
/// the models read, in the target's spelling.
ordered_json ComponentConversion::patched(ordered_json config) const {
  const auto take = [&](const json& from) {
    for (auto& [key, value] : config.items()) {
      if (key == "_class_name" || key.starts_with("source_")) {
        continue;
      }
      if (from.contains(key)) {
        value = from.at(key);
        continue;
      }
      for (const auto& [one, other] : kAliases) {
        const char* alias = key == one ? other : key == other ? one : nullptr;
        if (alias != nullptr && from.contains(alias)) {
          value = from.at(alias);
        }
      }
    }
  };
  // The first document is asked first by readers too, so it comes last here.
  for (auto document = documents_.rbegin(); document != documents_.rend(); ++document) {
    const json::json_pointer nested("/metadata/kwargs");
    if (document->content.contains(nested) && document->content.at(nested).is_object()) {
      take(document->content.at(nested));
    }
    take(document->content);
  }
  for (const auto& [canonical, values] : analysis_->config.values) {
    const std::vector<std::string> pointers = config_pointers(component(), canonical);
    const auto found = std::find_if(pointers.begin(), pointers.end(), [&](const auto& pointer) {
      return config.contains(ordered_json::json_pointer(pointer));
    });
    if (pointers.empty()) {
      continue;
    }
    if (found == pointers.end()) {
      // Nothing in the template speaks of it; it is said at the top level.
      const auto top = std::find_if(pointers.rbegin(), pointers.rend(), [](const auto& pointer) {
        return std::count(pointer.begin(), pointer.end(), '/') == 1;
      });
      if (top != pointers.rend()) {
        std::size_t next = 0;
        config[ordered_json::json_pointer(*top)] = shaped_like({}, values, next);
      }
      continue;
    }
    ordered_json& place = config[ordered_json::json_pointer(*found)];
    const bool nested = place.is_array() && !place.empty() && place.front().is_array();
    if (nested && count_numbers(place) != values.size()) {
      ordered_json row = place.front();
      place = ordered_json::array();
      for (std::size_t i = 0; i < values.size(); i += std::max<std::size_t>(1, row.size())) {
        place.push_back(row);
      }
    }
    std::size_t next = 0;
    place = shaped_like(place, values, next);
  }
  return config;
}

const json* ComponentConversion::text_document() const {
  for (const ConfigDocument& document : documents_) {
    if (document.content.contains("text_config") &&
        document.content.at("text_config").is_object()) {
      return &document.content;
    }
  }
  return nullptr;
}

/// Every layout describes the text encoder by transformers' config.json: it is kept, with the
/// number of layers that are stored.
ordered_json ComponentConversion::text_config(std::int64_t stored_layers) const {
  const json* document = text_document();
  if (document == nullptr) {
    ordered_json config = patched(single_file_json(model_, Component::kTextEncoder));
    config["text_config"]["num_hidden_layers"] = stored_layers;
    return config;
  }
  ordered_json config = *document;
  config["text_config"]["num_hidden_layers"] = stored_layers;
  if (!config.contains("conditioning_layer") && !config.contains("miniacc_text_layers")) {
    config["conditioning_layer"] = model_.text_encoder.num_layers;
  }
  return config;
}

std::vector<ConfigFile> ComponentConversion::configs() const {
  std::vector<ConfigFile> files = component_configs(model_, component(), options_.format);
  for (ConfigFile& file : files) {
    file.content = component() == Component::kTextEncoder ? text_config(model_.stored_text_layers)
                                                          : patched(std::move(file.content));
  }
  return files;
}

std::string ComponentConversion::single_config() const {
  return (component() == Component::kTextEncoder ? text_config(model_.text_encoder.num_layers)
                                                 : patched(single_file_json(model_, component())))
      .dump();
}

/// A component that has the target's form already is not rewritten.
void ComponentConversion::choose_copies() {
  const CheckpointInfo& info = analysis_->info;
  if (options_.storage != WeightStorage::kAsStored || prunes() || options_.measure_int8) {
    return;
  }
  const bool gguf = info.container == ContainerFormat::kGguf;
  const bool single = info.path.extension() == ".safetensors" &&
                      info.path.filename() != "model.safetensors" &&
                      info.path.filename() != "diffusion_pytorch_model.safetensors";
  bool same = false;
  if (is_folder_format(options_.format)) {
    same = component() == Component::kTextEncoder && info.naming == Naming::kOfficial && !gguf &&
           text_document() != nullptr && info.path.extension() == ".json";
  } else if (component() == Component::kTransformer || component() == Component::kTextEncoder) {
    same = is_gguf() ? gguf
                     : single && info.naming == Naming::kComfy &&
                           (component() == Component::kTextEncoder ||
                            info.pruned == (options_.format == CheckpointFormat::kComfyPruned));
  } else {
    same = single && info.naming != Naming::kDiffusers && !has_weight_norm_ &&
           analysis_->file.metadata().contains("config");
  }
  if (!same) {
    return;
  }
  report_.num_tensors = static_cast<std::int64_t>(analysis_->file.entries().size());
  if (!is_folder_format(options_.format)) {
    copies_ = {info.path};
  } else {
    for (const MappedFile& file : analysis_->file.files()) {
      copies_.push_back(file.path());
    }
    copies_.push_back(info.path);  // the index
    copies_.push_back(info.path.parent_path() / "config.json");
  }
  for (const fs::path& path : copies_) {
    std::error_code ignored;
    const auto size = fs::file_size(path, ignored);
    report_.size_bytes += ignored ? 0 : size;
  }
}

}  // namespace miniacc
