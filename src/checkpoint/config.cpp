#include "checkpoint/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <system_error>

#include "checkpoint/config_documents.h"

namespace miniacc {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::uintmax_t kMaxConfigBytes = std::uintmax_t{16} << 20;

/// One spelling of a canonical key, as a JSON pointer.
struct KeyRule {
  const char* canonical;
  const char* pointer;
};

constexpr KeyRule kTransformerKeys[] = {
    {"rope_theta", "/rope_theta"},           {"rope_inv_freq_len", "/rope_inv_freq_len"},
    {"rope_inv_freq_len", "/rope_freq_dim"}, {"norm_eps", "/norm_eps"},
    {"qk_norm_eps", "/qk_norm_eps"},         {"final_norm_eps", "/final_norm_eps"},
};

constexpr KeyRule kTextKeys[] = {
    {"rms_norm_eps", "/text_config/rms_norm_eps"},
    {"rms_norm_eps", "/rms_norm_eps"},
    {"rope_theta", "/text_config/rope_theta"},
    {"rope_theta", "/text_config/rope_scaling/rope_theta"},
    {"rope_theta", "/text_config/rope_parameters/rope_theta"},
    {"rope_theta", "/rope_theta"},
    {"mrope_section", "/text_config/rope_scaling/mrope_section"},
    {"mrope_section", "/text_config/rope_parameters/mrope_section"},
    {"mrope_section", "/rope_scaling/mrope_section"},
    {"num_hidden_layers", "/text_config/num_hidden_layers"},
    {"num_hidden_layers", "/num_hidden_layers"},
    {"head_dim", "/text_config/head_dim"},
    {"head_dim", "/head_dim"},
    {"vision_num_heads", "/vision_config/num_heads"},
    {"deepstack_visual_indexes", "/vision_config/deepstack_visual_indexes"},
    {"miniacc_text_layers", "/conditioning_layer"},
    {"miniacc_text_layers", "/miniacc_text_layers"},
};

constexpr KeyRule kVideoKeys[] = {
    {"num_heads", "/vit_decoder_kwargs/heads"},
    {"num_heads", "/decoder_num_attention_heads"},
    {"rope_theta", "/vit_decoder_kwargs/rope_theta"},
    {"rope_theta", "/decoder_rope_theta"},
    {"rope_dim_ratio", "/vit_decoder_kwargs/rope_dim_ratio"},
    {"rope_dim_ratio", "/decoder_rope_dim_ratio"},
    {"norm_eps", "/vit_decoder_kwargs/norm_eps"},
    {"norm_eps", "/decoder_norm_eps"},
    {"latents_mean", "/latents_mean"},
    {"latents_std", "/latents_std"},
    {"clip_length", "/vae_clip_length"},
    {"clip_length", "/clip_length"},
    {"token_drop", "/vae_token_drop"},
    {"token_drop", "/token_drop"},
    {"tile_size", "/vae_tile_size"},
    {"tile_size", "/tile_size"},
    {"tile_overlap_min", "/vae_tile_overlap_min"},
    {"tile_overlap_min", "/tile_overlap_min"},
    {"encoder_space_down", "/space_down"},
    {"encoder_space_down", "/spatial_downsample_factors"},
    {"encoder_time_down", "/time_down"},
    {"encoder_time_down", "/temporal_downsample_factors"},
    {"encoder_norm_groups", "/norm_num_groups"},
    {"encoder_norm_eps", "/norm_eps"},
};

/// A choice that is no number: the canonical key is 1 where it is the one that is supported, 0
/// where it is another.
struct ChoiceRule {
  const char* canonical;
  const char* pointer;
  const char* supported;  ///< as JSON
};

constexpr ChoiceRule kVideoChoices[] = {
    {"encoder_padding_is_reflect", "/padding_mode", R"("reflect")"},
    {"encoder_padding_is_reflect", "/spatial_padding_mode", R"("reflect")"},
    {"encoder_is_causal", "/causal_encoder", "true"},
    {"encoder_norm_is_per_frame", "/use_t_isolated_gn", "true"},
};

constexpr KeyRule kAudioKeys[] = {
    {"latents_mean", "/latents_mean"},
    {"latents_std", "/latents_std"},
    {"decoder_rates", "/decoder_rates"},
    {"decoder_rates", "/metadata/kwargs/decoder_rates"},
    {"encoder_rates", "/encoder_rates"},
    {"encoder_rates", "/metadata/kwargs/encoder_rates"},
    {"encoder_num_heads", "/num_attention_heads"},
    {"encoder_num_heads", "/metadata/kwargs/num_attention_heads"},
    {"resblock_kernel_sizes", "/resblock_kernel_sizes"},
    {"resblock_dilation_sizes", "/resblock_dilation_sizes"},
    {"sampling_rate", "/sampling_rate"},
    {"sampling_rate", "/sample_rate"},
    {"sampling_rate", "/metadata/kwargs/sample_rate"},
};

std::span<const KeyRule> key_rules(Component component) {
  switch (component) {
    case Component::kTransformer:
      return kTransformerKeys;
    case Component::kTextEncoder:
      return kTextKeys;
    case Component::kVideoVae:
      return kVideoKeys;
    case Component::kAudioVae:
      return kAudioKeys;
  }
  return {};
}

/// What a value must be to make sense, whatever the model's sizes.
struct KeyRange {
  const char* canonical;
  double lowest;
  double highest;
  bool whole;
  std::size_t count;  ///< values; 0: a list whose length the tensors tell
  const char* wanted;
};

constexpr double kFloatMax = std::numeric_limits<float>::max();
// The smallest normal float: what is smaller may be zero in the kernels, which compute in f32.
constexpr double kFloatMin = std::numeric_limits<float>::min();
constexpr double kMaxCount = 1e6;
constexpr const char* kWantedEps = "one number above 0, at most 0.1";
constexpr const char* kWantedCount = "one whole number from 1 to 1000000";

constexpr KeyRange kRanges[] = {
    {"norm_eps", kFloatMin, 0.1, false, 1, kWantedEps},
    {"qk_norm_eps", kFloatMin, 0.1, false, 1, kWantedEps},
    {"final_norm_eps", kFloatMin, 0.1, false, 1, kWantedEps},
    {"rms_norm_eps", kFloatMin, 0.1, false, 1, kWantedEps},
    {"rope_theta", 1.0, 1e12, false, 1, "one number from 1 to 1e12"},
    {"rope_inv_freq_len", 1.0, kMaxCount, true, 1, kWantedCount},
    {"num_hidden_layers", 1.0, kMaxCount, true, 1, kWantedCount},
    {"miniacc_text_layers", 1.0, kMaxCount, true, 1, kWantedCount},
    {"head_dim", 1.0, kMaxCount, true, 1, kWantedCount},
    {"num_heads", 1.0, kMaxCount, true, 1, kWantedCount},
    {"vision_num_heads", 1.0, kMaxCount, true, 1, kWantedCount},
    {"deepstack_visual_indexes", 0.0, kMaxCount, true, 0, "whole numbers from 0 to 1000000"},
    {"mrope_section", 0.0, kMaxCount, true, 3, "three whole numbers from 0 to 1000000"},
    {"decoder_rates", 1.0, kMaxCount, true, 0, "whole numbers from 1 to 1000000"},
    {"latents_mean", -kFloatMax, kFloatMax, false, 0, "numbers in the range of f32"},
    {"latents_std", kFloatMin, kFloatMax, false, 0, "numbers above 0 in the range of f32"},
};

/// kInvalidInput unless `numbers` are what the canonical key can hold.
Status check_range(std::string_view canonical, const std::vector<double>& numbers,
                   const std::string& where) {
  for (const KeyRange& range : kRanges) {
    if (canonical != range.canonical) {
      continue;
    }
    const bool valid = (range.count == 0 || numbers.size() == range.count) &&
                       std::all_of(numbers.begin(), numbers.end(), [&](double number) {
                         return number >= range.lowest && number <= range.highest &&
                                (!range.whole || number == std::floor(number));
                       });
    if (!valid) {
      return fail(ErrorCode::kInvalidInput, fmt::format("{} is {}, wanted {}", where,
                                                        fmt::join(numbers, ", "), range.wanted));
    }
  }
  return {};
}

/// The component a config.json says it is for; empty when it does not say.
std::optional<Component> described_component(const json& root) {
  if (root.contains("text_config") || root.contains("architectures")) {
    return Component::kTextEncoder;
  }
  const auto name = root.find("_class_name");
  if (name == root.end() || !name->is_string()) {
    return std::nullopt;
  }
  const auto text = name->get<std::string>();
  if (text.find("Transformer") != std::string::npos || text.find("DiT") != std::string::npos) {
    return Component::kTransformer;
  }
  if (text.find("Audio") != std::string::npos) {
    return Component::kAudioVae;
  }
  if (text.find("VAE") != std::string::npos || text.find("Autoencoder") != std::string::npos) {
    return Component::kVideoVae;
  }
  return std::nullopt;
}

Status take_values(Component component, const json& root, const std::string& where,
                   ComponentConfig& config) {
  for (const KeyRule& rule : key_rules(component)) {
    const json::json_pointer pointer(rule.pointer);
    if (config.values.contains(rule.canonical) || !root.contains(pointer) ||
        root[pointer].is_null()) {
      continue;
    }
    const std::string key = key_of_pointer(rule.pointer);
    std::vector<double> numbers;
    MINIACC_RETURN_IF_ERROR(
        flatten_numbers(root[pointer], fmt::format("{}: {}", where, key), numbers));
    MINIACC_RETURN_IF_ERROR(
        check_range(rule.canonical, numbers, fmt::format("{}: {}", where, key)));
    config.values[rule.canonical] = std::move(numbers);
    config.sources[rule.canonical] = fmt::format("{} says {}", where, key);
  }
  if (component == Component::kVideoVae) {
    for (const ChoiceRule& rule : kVideoChoices) {
      const json::json_pointer pointer(rule.pointer);
      if (!config.values.contains(rule.canonical) && root.contains(pointer) &&
          !root[pointer].is_null()) {
        const bool supported = root[pointer] == json::parse(rule.supported);
        config.values[rule.canonical] = {supported ? 1.0 : 0.0};
        config.sources[rule.canonical] =
            fmt::format("{} says {}", where, key_of_pointer(rule.pointer));
      }
    }
  }
  return take_claims(component, root, where, config.claims);
}

Result<json> read_json(const fs::path& path) {
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    return fail(ErrorCode::kIo, fmt::format("{}: cannot open this file: {}", path.string(),
                                            std::generic_category().message(errno)));
  }
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) {
    return fail(ErrorCode::kIo, fmt::format("{}: cannot read the size of this file: {}",
                                            path.string(), error.message()));
  }
  if (size > kMaxConfigBytes) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: is {} bytes, wanted a JSON file of at most {}", path.string(),
                            size, kMaxConfigBytes));
  }
  std::string text(static_cast<std::size_t>(size), '\0');
  errno = 0;
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!stream) {
    return fail(ErrorCode::kIo,
                fmt::format("{}: read {} of {} bytes: {}", path.string(), stream.gcount(), size,
                            errno == 0 ? std::string("the file became shorter")
                                       : std::generic_category().message(errno)));
  }
  json root = json::parse(text, nullptr, false);
  if (!root.is_object()) {
    return fail(ErrorCode::kInvalidInput, path.string() + ": not a JSON object");
  }
  return root;
}

/// llama.cpp metadata: "<architecture>.rope.freq_base" and the like.
Status take_llama_values(const std::map<std::string, std::string>& metadata,
                         const std::string& where, ComponentConfig& config) {
  constexpr std::pair<std::string_view, const char*> kKeys[] = {
      {".attention.layer_norm_rms_epsilon", "rms_norm_eps"},
      {".rope.freq_base", "rope_theta"},
      {".attention.key_length", "head_dim"},
      {".block_count", "num_hidden_layers"},
  };
  for (const auto& [key, text] : metadata) {
    for (const auto& [suffix, canonical] : kKeys) {
      // A vision tower's layers are not the language model's.
      if (!key.ends_with(suffix) || key.starts_with("clip.") || config.values.contains(canonical)) {
        continue;
      }
      // Printed by our own reader; a string of another kind is no number and is passed over.
      const json number = json::parse(text, nullptr, false);
      if (number.is_number() && std::isfinite(number.get<double>())) {
        std::vector<double> numbers = {number.get<double>()};
        MINIACC_RETURN_IF_ERROR(
            check_range(canonical, numbers, fmt::format("{}: metadata {}", where, key)));
        config.values[canonical] = std::move(numbers);
        config.sources[canonical] = fmt::format("{}: metadata says {}", where, key);
      }
    }
  }
  return {};
}

}  // namespace

Result<std::vector<ConfigDocument>> read_config_documents(
    Component component, const fs::path& file, const std::map<std::string, std::string>& metadata) {
  std::vector<ConfigDocument> documents;
  if (const auto text = metadata.find("config"); text != metadata.end()) {
    // Other tools put other things under this key; only JSON objects are ours.
    json root = json::parse(text->second, nullptr, false);
    if (root.is_object()) {
      documents.push_back({file.string() + ": metadata config", true, std::move(root)});
    }
  }
  const fs::path folder = file.parent_path();
  std::vector<fs::path> candidates = {folder / "config.json"};
  if (component == Component::kAudioVae) {
    candidates.push_back(folder / "metadata.json");
  }
  if (component == Component::kVideoVae) {
    candidates.push_back(folder / "source" / "config.json");
  }
  if (folder.filename() == "source") {
    candidates.push_back(folder.parent_path() / "config.json");
    candidates.push_back(folder.parent_path() / "metadata.json");
  }
  for (const fs::path& path : candidates) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (status.type() == fs::file_type::none) {  // there, perhaps, and not to be looked at
      return fail(ErrorCode::kIo, fmt::format("{}: {}", path.string(), error.message()));
    }
    if (!fs::is_regular_file(status)) {
      continue;
    }
    MINIACC_ASSIGN(json root, read_json(path));
    const auto described = described_component(root);
    if (!described || *described == component) {
      documents.push_back({path.string(), false, std::move(root)});
    }
  }
  return documents;
}

std::vector<std::string> config_pointers(Component component, std::string_view canonical) {
  std::vector<std::string> pointers;
  for (const KeyRule& rule : key_rules(component)) {
    if (canonical == rule.canonical) {
      pointers.emplace_back(rule.pointer);
    }
  }
  return pointers;
}

Result<ComponentConfig> read_component_config(Component component, const fs::path& file,
                                              const std::map<std::string, std::string>& metadata) {
  ComponentConfig config;
  MINIACC_ASSIGN(const auto documents, read_config_documents(component, file, metadata));
  for (const ConfigDocument& document : documents) {
    const json& root = document.content;
    if (const auto name = root.find("_class_name");
        !document.in_file && config.class_name.empty() && name != root.end() && name->is_string()) {
      config.class_name = name->get<std::string>();
    }
    MINIACC_RETURN_IF_ERROR(take_values(component, root, document.where, config));
  }
  if (component == Component::kTextEncoder) {
    MINIACC_RETURN_IF_ERROR(take_llama_values(metadata, file.string(), config));
    take_llama_claims(metadata, file.string(), config.claims);
  }
  return config;
}

}  // namespace miniacc
