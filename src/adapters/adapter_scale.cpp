#include "adapters/adapter_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

namespace miniacc {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;
// diffusers saves the configs of all networks of a pipeline in one object, with these in front.
constexpr std::array<std::string_view, 3> kBlobPrefixes = {"", "transformer.", "transformer_ref."};

tl::unexpected<Error> refuse(const TensorFile& file, const std::string& what) {
  return fail(ErrorCode::kInvalidInput, fmt::format("{}: {}", file.path().string(), what));
}

bool is_alpha(double value) { return std::isfinite(value) && value > 0.0; }

Result<double> parse_metadata_number(const TensorFile& file, const std::string& key) {
  const std::string& text = file.metadata().at(key);
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !is_alpha(value)) {
    return refuse(file, fmt::format("metadata '{}' is '{}', wanted a number above 0", key,
                                    text.substr(0, 64)));
  }
  return value;
}

/// {"to_q": 8, ...}: names, not the regular expressions that PEFT would also take.
Status read_pattern(const TensorFile& file, const json& object, const std::string& key,
                    std::vector<std::pair<std::string, double>>& pattern) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) {
    return {};
  }
  if (!found->is_object()) {
    return refuse(file, fmt::format("its training config has a '{}' that is no object", key));
  }
  for (const auto& [name, value] : found->items()) {
    const bool plain = name.find_first_not_of(
                           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                           "0123456789_.") == std::string::npos;
    if (!plain || !value.is_number() || !is_alpha(value.get<double>())) {
      return refuse(file, fmt::format("its training config has an entry of '{}' that is no module "
                                      "name with a number above 0",
                                      key));
    }
    pattern.emplace_back(name, value.get<double>());
  }
  return {};
}

/// The rule of a PEFT config whose keys begin with `prefix`; nothing when it has no lora_alpha.
Result<std::optional<AlphaRule>> read_peft_config(const TensorFile& file, const json& object,
                                                  const std::string& prefix) {
  const auto alpha = object.find(prefix + "lora_alpha");
  if (alpha == object.end()) {
    return std::optional<AlphaRule>();
  }
  AlphaRule rule;
  rule.source = AlphaSource::kTrainer;
  if (!alpha->is_number() || !is_alpha(alpha->get<double>())) {
    return refuse(file, "its training config has a lora_alpha that is no number above 0");
  }
  rule.alpha = alpha->get<double>();
  if (const auto rank = object.find(prefix + "r"); rank != object.end()) {
    if (!rank->is_number_integer()) {
      return refuse(file, "its training config has a rank 'r' that is no whole number");
    }
    rule.rank = rank->get<std::int64_t>();
  }
  if (const auto rslora = object.find(prefix + "use_rslora"); rslora != object.end()) {
    rule.rank_stabilized = rslora->is_boolean() && rslora->get<bool>();
  }
  MINIACC_RETURN_IF_ERROR(read_pattern(file, object, prefix + "alpha_pattern", rule.alpha_pattern));
  MINIACC_RETURN_IF_ERROR(read_pattern(file, object, prefix + "rank_pattern", rule.rank_pattern));
  return std::optional(std::move(rule));
}

/// lora_alpha and lora_rank of the metadata, a PEFT blob in it, or adapter_config.json beside it.
Result<std::optional<AlphaRule>> read_trainer_rule(const TensorFile& file) {
  if (file.metadata().contains("lora_alpha")) {
    AlphaRule rule;
    rule.source = AlphaSource::kTrainer;
    MINIACC_ASSIGN(rule.alpha, parse_metadata_number(file, "lora_alpha"));
    if (file.metadata().contains("lora_rank")) {
      MINIACC_ASSIGN(const double rank, parse_metadata_number(file, "lora_rank"));
      if (rank != std::floor(rank) || rank > 1e9) {
        return refuse(file, fmt::format("metadata 'lora_rank' is {}, wanted a whole number", rank));
      }
      rule.rank = static_cast<std::int64_t>(rank);
    }
    return std::optional(std::move(rule));
  }
  std::vector<json> blobs;
  for (const auto& [key, text] : file.metadata()) {
    if (text.find("lora_alpha") != std::string::npos) {
      blobs.push_back(json::parse(text, nullptr, /*allow_exceptions=*/false));
    }
  }
  const auto config_path = file.path().parent_path() / "adapter_config.json";
  if (std::ifstream config(config_path, std::ios::binary); blobs.empty() && config) {
    std::string text(kMaxConfigBytes + 1, '\0');
    config.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(config.gcount()));
    blobs.push_back(json::parse(text, nullptr, /*allow_exceptions=*/false));
    if (text.size() > kMaxConfigBytes || !blobs.back().is_object()) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: no JSON object of at most 1 MiB, so the scale of the adapter "
                              "beside it cannot be told",
                              config_path.string()));
    }
  }
  for (const json& blob : blobs) {
    if (!blob.is_object()) {
      return refuse(file, "its metadata mention lora_alpha in a form that is not understood");
    }
    for (const std::string_view prefix : kBlobPrefixes) {
      MINIACC_ASSIGN(auto rule, read_peft_config(file, blob, std::string(prefix)));
      if (rule) {
        return rule;
      }
    }
  }
  return std::optional<AlphaRule>();
}

AlphaRule known_rule(const TensorFile& file, const AlphaQuery& query) {
  AlphaRule rule;
  const AdapterIdentity* identity = query.identity;
  const bool listed = identity != nullptr && identity->known != nullptr && identity->known->alpha;
  if (listed && identity->known_by == KnownBy::kContent) {
    rule.source = AlphaSource::kKnownContent;
    rule.alpha = identity->known->alpha;
    return rule;
  }
  if (!query.like_lightx2v) {
    return rule;
  }
  if (listed) {
    rule.source = AlphaSource::kKnownName;
    rule.alpha = identity->known->alpha;
    rule.warning = fmt::format(
        "{}: holds no alpha; its file name is that of a release with alpha {}, which is used",
        file.path().string(), *rule.alpha);
    return rule;
  }
  rule.warning = fmt::format(
      "{}: holds no alpha, and its names and rank are those of lightx2v files, some of which need "
      "a scale of 1/16 and some of 1; 1 is used, alpha 8 gives 1/16",
      file.path().string());
  return rule;
}

const double* find_pattern(const std::vector<std::pair<std::string, double>>& patterns,
                           std::string_view module) {
  for (const auto& [name, value] : patterns) {
    if (module == name || module.ends_with("." + name)) {
      return &value;
    }
  }
  return nullptr;
}

}  // namespace

std::string_view alpha_source_name(AlphaSource source) {
  switch (source) {
    case AlphaSource::kGiven:
      return "the request";
    case AlphaSource::kTensors:
      return "alpha tensors";
    case AlphaSource::kMetadata:
      return "metadata";
    case AlphaSource::kTrainer:
      return "training config";
    case AlphaSource::kKnownContent:
      return "table of known files";
    case AlphaSource::kKnownName:
      return "table of known file names";
    case AlphaSource::kDefault:
      return "default (alpha = rank)";
  }
  MINIACC_REQUIRE(false, "alpha_source_name: unknown source");
}

Result<double> AlphaRule::scale(const std::string& module, std::int64_t tensor_rank,
                                std::optional<double> alpha_tensor) const {
  const auto rank_value = static_cast<double>(tensor_rank);
  if (source == AlphaSource::kTensors) {
    return alpha_tensor ? *alpha_tensor / rank_value : 1.0;
  }
  const double* own_rank = find_pattern(rank_pattern, module);
  const double wanted =
      own_rank != nullptr ? *own_rank : (rank ? static_cast<double>(*rank) : rank_value);
  if (wanted != rank_value) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{} has rank {} and the training config says {}: its lora_alpha is not "
                            "for these tensors; give alpha explicitly",
                            module, tensor_rank, wanted));
  }
  const double* own_alpha = find_pattern(alpha_pattern, module);
  if (own_alpha == nullptr && !alpha) {
    return 1.0;
  }
  return (own_alpha != nullptr ? *own_alpha : *alpha) /
         (rank_stabilized ? std::sqrt(rank_value) : rank_value);
}

Result<AlphaRule> find_alpha_rule(const TensorFile& file, const AlphaQuery& query) {
  AlphaRule rule;
  if (query.given) {
    rule.source = AlphaSource::kGiven;
    rule.alpha = query.given;
    return rule;
  }
  if (query.has_alpha_tensors) {
    rule.source = AlphaSource::kTensors;
    return rule;
  }
  if (file.metadata().contains("alpha")) {
    rule.source = AlphaSource::kMetadata;
    MINIACC_ASSIGN(rule.alpha, parse_metadata_number(file, "alpha"));
    return rule;
  }
  MINIACC_ASSIGN(auto trainer, read_trainer_rule(file));
  if (trainer) {
    return *std::move(trainer);
  }
  return known_rule(file, query);
}

}  // namespace miniacc
