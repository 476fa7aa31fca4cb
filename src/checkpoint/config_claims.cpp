#include "checkpoint/config_claims.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

namespace miniacc {
namespace {

using nlohmann::json;

/// One spelling of a fact, as a JSON pointer.
struct ClaimRule {
  const char* fact;
  const char* pointer;
  bool counts = false;
};

constexpr ClaimRule kTransformerClaims[] = {
    {"num_layers", "/num_layers"},
    {"num_refiner_layers", "/token_refiner_num_layers"},
    {"num_refiner_layers", "/num_refiner_layers"},
    {"hidden_size", "/hidden_size"},
    {"num_heads", "/num_attention_heads"},
    {"head_dim", "/attention_head_dim"},
    {"ffn_hidden_size", "/ffn_hidden_size"},
    {"ffn_hidden_size", "/ffn_dim"},
    {"video_latent_channels", "/latents_dim"},
    {"video_latent_channels", "/in_channels"},
    {"audio_latent_channels", "/audio_latents_dim"},
    {"audio_latent_channels", "/audio_in_channels"},
    {"text_dim", "/text_dim"},
    {"timestep_input_dim", "/timestep_input_dim"},
    {"timestep_input_dim", "/freq_dim"},
    {"time_embed_hidden_size", "/time_embed_hidden_size"},
    {"time_embed_hidden_size", "/time_embed_hidden_dim"},
    {"time_embed_dim", "/time_embed_dim"},
    {"adaln_out_features", "/adaln_out_features"},
    {"final_adaln_out_features", "/final_adaln_out_features"},
    {"rope_inv_freq_len", "/rope_inv_freq_len"},
    {"rope_inv_freq_len", "/rope_freq_dim"},
};

// num_hidden_layers is absent: a file may hold just the layers that are used.
constexpr ClaimRule kTextClaims[] = {
    {"hidden_size", "/text_config/hidden_size"},
    {"hidden_size", "/hidden_size"},
    {"num_heads", "/text_config/num_attention_heads"},
    {"num_heads", "/num_attention_heads"},
    {"num_key_value_heads", "/text_config/num_key_value_heads"},
    {"num_key_value_heads", "/num_key_value_heads"},
    {"head_dim", "/text_config/head_dim"},
    {"head_dim", "/head_dim"},
    {"ffn_hidden_size", "/text_config/intermediate_size"},
    {"ffn_hidden_size", "/intermediate_size"},
    {"vocab_size", "/text_config/vocab_size"},
    {"vocab_size", "/vocab_size"},
    {"vision_depth", "/vision_config/depth"},
    {"vision_hidden_size", "/vision_config/hidden_size"},
    {"vision_ffn_hidden_size", "/vision_config/intermediate_size"},
    {"vision_deepstack", "/vision_config/deepstack_visual_indexes", true},
};

constexpr ClaimRule kVideoClaims[] = {
    {"latent_channels", "/latent_channels"},
    {"num_layers", "/vit_decoder_kwargs/num_layers"},
    {"num_layers", "/decoder_num_layers"},
    {"head_dim", "/vit_decoder_kwargs/dim_head"},
    {"head_dim", "/decoder_attention_head_dim"},
    {"ffn_hidden_size", "/vit_decoder_kwargs/ffn_hidden_size"},
    {"ffn_mult", "/decoder_ffn_mult"},
    {"num_register_tokens", "/decoder_num_register_tokens"},
    {"latent_channels", "/latents_mean", true},
    {"latent_channels", "/latents_std", true},
    {"encoder_channels", "/ch"},
    {"encoder_multipliers", "/ch_mult"},
    {"encoder_widths", "/block_out_channels"},
    {"encoder_blocks", "/num_res_blocks"},
    {"encoder_blocks", "/layers_per_block"},
};

constexpr ClaimRule kAudioClaims[] = {
    {"latent_channels", "/latent_channels"},
    {"latent_channels", "/metadata/kwargs/vae_latent_channels"},
    {"latent_channels", "/latents_mean", true},
    {"latent_channels", "/latents_std", true},
    {"trunk_size", "/latent_dim"},
    {"trunk_size", "/metadata/kwargs/latent_dim"},
    {"decoder_channels", "/decoder_dim"},
    {"decoder_channels", "/metadata/kwargs/decoder_dim"},
    {"decoder_kernel_sizes", "/decoder_kernel_sizes"},
    {"upsamplers", "/decoder_rates", true},
    {"upsamplers", "/metadata/kwargs/decoder_rates", true},
    {"resblock_kernel_sizes", "/resblock_kernel_sizes"},
    {"resblock_dilations", "/resblock_dilation_sizes", true},
    {"encoder_channels", "/encoder_dim"},
    {"encoder_channels", "/metadata/kwargs/encoder_dim"},
    {"encoder_rates", "/encoder_rates"},
    {"encoder_rates", "/metadata/kwargs/encoder_rates"},
};

std::span<const ClaimRule> claim_rules(Component component) {
  switch (component) {
    case Component::kTransformer:
      return kTransformerClaims;
    case Component::kTextEncoder:
      return kTextClaims;
    case Component::kVideoVae:
      return kVideoClaims;
    case Component::kAudioVae:
      return kAudioClaims;
  }
  return {};
}

/// "3", or "[3, 7, 11]" for several.
std::string spell(const std::vector<double>& values) {
  return values.size() == 1 ? fmt::format("{}", values.front())
                            : fmt::format("[{}]", fmt::join(values, ", "));
}

}  // namespace

Status flatten_numbers(const json& value, const std::string& where, std::vector<double>& out) {
  if (value.is_array()) {
    if (value.empty()) {
      return fail(ErrorCode::kInvalidInput, where + " is an empty list, wanted numbers");
    }
    for (const json& item : value) {
      MINIACC_RETURN_IF_ERROR(flatten_numbers(item, where, out));
    }
    return {};
  }
  if (!value.is_number() || !std::isfinite(value.get<double>())) {
    return fail(ErrorCode::kInvalidInput, where + " is not a finite number or a list of them");
  }
  out.push_back(value.get<double>());
  return {};
}

std::string key_of_pointer(std::string pointer) {
  pointer.erase(0, 1);
  std::replace(pointer.begin(), pointer.end(), '/', '.');
  return pointer;
}

Status take_claims(Component component, const json& root, const std::string& where,
                   std::vector<ConfigClaim>& claims) {
  for (const ClaimRule& rule : claim_rules(component)) {
    const json::json_pointer pointer(rule.pointer);
    if (!root.contains(pointer) || root[pointer].is_null()) {
      continue;
    }
    const std::string key = key_of_pointer(rule.pointer);
    ConfigClaim claim{rule.fact, fmt::format("{} says {}", where, key), {}, rule.counts};
    MINIACC_RETURN_IF_ERROR(
        flatten_numbers(root[pointer], fmt::format("{}: {}", where, key), claim.values));
    claims.push_back(std::move(claim));
  }
  return {};
}

void take_llama_claims(const std::map<std::string, std::string>& metadata, const std::string& where,
                       std::vector<ConfigClaim>& claims) {
  constexpr std::pair<const char*, const char*> kKeys[] = {
      {".embedding_length", "hidden_size"},   {".feed_forward_length", "ffn_hidden_size"},
      {".attention.head_count", "num_heads"}, {".attention.head_count_kv", "num_key_value_heads"},
      {".attention.key_length", "head_dim"},
  };
  const auto architecture = metadata.find("general.architecture");
  if (architecture == metadata.end()) {
    return;
  }
  for (const auto& [tail, fact] : kKeys) {
    const auto found = metadata.find(architecture->second + tail);
    if (found == metadata.end()) {
      continue;
    }
    const json number = json::parse(found->second, nullptr, false);
    if (number.is_number()) {
      claims.push_back({fact,
                        fmt::format("{}: metadata says {}", where, found->first),
                        {number.get<double>()},
                        false});
    }
  }
}

std::vector<std::string> contradictions(const std::vector<ConfigClaim>& claims,
                                        const Facts& facts) {
  std::vector<std::string> found;
  for (const ConfigClaim& claim : claims) {
    const auto place = facts.find(claim.fact);
    if (place == facts.end()) {
      continue;
    }
    const Fact& fact = place->second;
    const std::vector<double> wanted =
        claim.counts ? std::vector<double>{static_cast<double>(claim.values.size())} : claim.values;
    if (wanted == fact.values) {
      continue;
    }
    const std::string said = claim.counts
                                 ? fmt::format("{} with {} values", claim.said, claim.values.size())
                                 : fmt::format("{} {}", claim.said, spell(claim.values));
    if (fact.stack.empty() || wanted.size() != 1) {
      found.push_back(fmt::format("{}, {} {}", said, fact.basis, spell(fact.values)));
    } else if (wanted.front() > fact.values.front()) {
      const auto stored = static_cast<std::int64_t>(fact.values.front());
      found.push_back(fmt::format("{}, {}", said, missing_member(fact.stack, stored)));
    } else {
      found.push_back(
          fmt::format("{}, the file has {} 0 to {}", said, fact.stack, fact.values.front() - 1));
    }
  }
  return found;
}

std::string missing_member(const std::string& stack, std::int64_t stored) {
  return stored == 0 ? fmt::format("the file has no {}: {}.0 is missing", stack, stack)
                     : fmt::format("the file has {} 0 to {}: {}.{} is missing", stack, stored - 1,
                                   stack, stored);
}

}  // namespace miniacc
