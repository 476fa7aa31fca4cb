#include "adapters/adapter_names.h"

#include <algorithm>
#include <array>

namespace miniacc {
namespace {

using std::string_view_literals::operator""sv;

// Longer ones first: "model." would eat the head of "model.diffusion_model.".
constexpr std::array kPrefixes = {"model.diffusion_model."sv, "base_model.model."sv,
                                  "diffusion_model."sv,       "transformer_ref."sv,
                                  "transformer."sv,           "model."sv};
constexpr std::string_view kFlatPrefix = "lora_unet_";
// Trainers wrap a model that is wrapped already: base_model.model.transformer.…
constexpr int kMaxPrefixes = 2;
constexpr std::size_t kMaxIndexDigits = 4;

struct Suffix {
  std::string_view text;
  AdapterRole role;
  bool default_infix = false;
};
// Longer ones before those they end in.
constexpr std::array<Suffix, 22> kSuffixes = {{
    {".lora_A.default.weight", AdapterRole::kDown, true},
    {".lora_B.default.weight", AdapterRole::kUp, true},
    {".lora_A.weight", AdapterRole::kDown},
    {".lora_B.weight", AdapterRole::kUp},
    {".lora_down.weight", AdapterRole::kDown},
    {".lora_up.weight", AdapterRole::kUp},
    {".lora.down.weight", AdapterRole::kDown},
    {".lora.up.weight", AdapterRole::kUp},
    {".lora_A", AdapterRole::kDown},
    {".lora_B", AdapterRole::kUp},
    {".lora_down", AdapterRole::kDown},
    {".lora_up", AdapterRole::kUp},
    {".alpha", AdapterRole::kAlpha},
    {".diff", AdapterRole::kDiff},
    {".diff_b", AdapterRole::kDiffBias},
    {".lora_mid.weight", AdapterRole::kUnsupported},
    {".dora_scale", AdapterRole::kUnsupported},
    {".reshape_weight", AdapterRole::kUnsupported},
    {".w_norm", AdapterRole::kUnsupported},
    {".b_norm", AdapterRole::kUnsupported},
    {".set_weight", AdapterRole::kReplacement},
    {".weight", AdapterRole::kReplacement},
}};
constexpr Suffix kBiasSuffix = {".bias", AdapterRole::kReplacement};

/// One module in both vocabularies; `{}` stands for the index of a block.
struct ModuleRule {
  std::string_view official;
  std::string_view diffusers;
  std::optional<int> qkv_part = std::nullopt;  ///< of the diffusers name
  bool value_first = false;                    ///< in the diffusers name
};
#define MINIACC_BLOCK_MODULES(ours, theirs)                                                       \
  {ours ".{}.attn.qkv_proj", theirs ".{}.attn.to_q", 0},                                          \
      {ours ".{}.attn.qkv_proj", theirs ".{}.attn.to_k", 1},                                      \
      {ours ".{}.attn.qkv_proj", theirs ".{}.attn.to_v", 2},                                      \
      {ours ".{}.attn.out_proj", theirs ".{}.attn.to_out.0"},                                     \
      {ours ".{}.mlp.fc1", theirs ".{}.ff.net.0.proj", std::nullopt, true},                       \
      {ours ".{}.mlp.fc2", theirs ".{}.ff.net.2"}, {ours ".{}.norm1", theirs ".{}.norm1"},        \
      {ours ".{}.norm2", theirs ".{}.norm2"}, {ours ".{}.attn.q_norm", theirs ".{}.attn.norm_q"}, \
  {                                                                                               \
    ours ".{}.attn.k_norm", theirs ".{}.attn.norm_k"                                              \
  }
constexpr ModuleRule kModules[] = {
    MINIACC_BLOCK_MODULES("blocks", "transformer_blocks"),
    MINIACC_BLOCK_MODULES("token_refiner.blocks", "token_refiner.refiner_blocks"),
    {"blocks.{}.adaln_proj.linear", "transformer_blocks.{}.adaln_proj.linear"},
    {"blocks.{}.attn.to_gate_compress", "transformer_blocks.{}.attn.to_gate_compress"},
    {"video_patch_proj", "proj_in"},
    {"audio_patch_proj", "audio_proj_in"},
    {"condition_proj", "context_embedder"},
    {"time_embedder.proj_in", "time_embedder.linear_1"},
    {"time_embedder.proj_out", "time_embedder.linear_2"},
    {"final_layer.adaln_proj.linear", "norm_out.linear"},
    {"final_layer.norm", "norm_out.norm"},
    {"final_layer.video_out", "proj_out"},
    {"final_layer.audio_out", "audio_proj_out"},
    {"token_refiner.final_norm", "token_refiner.final_norm"},
};
#undef MINIACC_BLOCK_MODULES

/// The index that `{}` of the pattern stands for ("" for a pattern without one); nothing when the
/// text does not match. Decimal, no leading zero.
std::optional<std::string_view> match(std::string_view text, std::string_view pattern) {
  const std::size_t hole = pattern.find("{}");
  if (hole == std::string_view::npos) {
    return text == pattern ? std::optional(""sv) : std::nullopt;
  }
  const std::string_view head = pattern.substr(0, hole);
  const std::string_view tail = pattern.substr(hole + 2);
  if (text.size() <= head.size() + tail.size() || !text.starts_with(head) ||
      !text.ends_with(tail)) {
    return std::nullopt;
  }
  const std::string_view index = text.substr(head.size(), text.size() - head.size() - tail.size());
  const bool decimal =
      std::all_of(index.begin(), index.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!decimal || index.size() > kMaxIndexDigits || (index.size() > 1 && index.front() == '0')) {
    return std::nullopt;
  }
  return index;
}

std::string fill(std::string_view pattern, std::string_view index) {
  std::string text(pattern);
  if (const std::size_t hole = text.find("{}"); hole != std::string::npos) {
    text.replace(hole, 2, index);
  }
  return text;
}

/// Fills the module's fields of `name` from name.stored_module.
bool resolve_module(AdapterName& name) {
  const bool flat = name.vocabulary == AdapterVocabulary::kFlat;
  for (const ModuleRule& rule : kModules) {
    if (flat) {
      std::string pattern(rule.official);
      std::replace(pattern.begin(), pattern.end(), '.', '_');
      if (const auto index = match(name.stored_module, pattern)) {
        name.module = fill(rule.official, *index);
        return true;
      }
      continue;
    }
    const auto official = match(name.stored_module, rule.official);
    const auto diffusers = match(name.stored_module, rule.diffusers);
    if (!official && !diffusers) {
      continue;
    }
    name.module = fill(rule.official, official ? *official : *diffusers);
    name.vocabulary = official && diffusers ? AdapterVocabulary::kEither
                      : official            ? AdapterVocabulary::kOfficial
                                            : AdapterVocabulary::kDiffusers;
    if (name.vocabulary == AdapterVocabulary::kDiffusers) {
      name.qkv_part = rule.qkv_part;
      name.value_first = rule.value_first;
    }
    return true;
  }
  return false;
}

void strip_prefixes(AdapterName& name) {
  std::string_view rest = name.stored_module;
  for (int i = 0; i < kMaxPrefixes; ++i) {
    const auto* found =
        std::find_if(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return rest.starts_with(prefix); });
    if (found == kPrefixes.end()) {
      break;
    }
    rest.remove_prefix(found->size());
  }
  if (rest.starts_with(kFlatPrefix)) {
    rest.remove_prefix(kFlatPrefix.size());
    name.vocabulary = AdapterVocabulary::kFlat;
  }
  name.prefix = name.stored_module.substr(0, name.stored_module.size() - rest.size());
  name.stored_module = std::string(rest);
}

}  // namespace

std::optional<AdapterName> parse_adapter_name(std::string_view name) {
  const Suffix* suffix =
      std::find_if(kSuffixes.begin(), kSuffixes.end(),
                   [&](const Suffix& candidate) { return name.ends_with(candidate.text); });
  if (suffix == kSuffixes.end()) {
    suffix = name.ends_with(kBiasSuffix.text) ? &kBiasSuffix : nullptr;
  }
  AdapterName parsed;
  if (suffix == nullptr) {
    parsed.stored_module = std::string(name);
    strip_prefixes(parsed);
    parsed.role = AdapterRole::kReplacement;
    parsed.module = parsed.stored_module;
    return parsed.stored_module == "adaln_t_table" ? std::optional(parsed) : std::nullopt;
  }
  parsed.stored_module = std::string(name.substr(0, name.size() - suffix->text.size()));
  parsed.role = suffix->role;
  parsed.default_infix = suffix->default_infix;
  strip_prefixes(parsed);
  return resolve_module(parsed) ? std::optional(std::move(parsed)) : std::nullopt;
}

std::optional<std::string> diffusers_module_name(std::string_view canonical,
                                                 std::optional<int> qkv_part) {
  for (const ModuleRule& rule : kModules) {
    const auto index = match(canonical, rule.official);
    if (index && rule.qkv_part == qkv_part) {
      return fill(rule.diffusers, *index);
    }
  }
  return std::nullopt;
}

std::string_view guess_other_family(std::string_view name) {
  struct Hint {
    std::string_view part;
    std::string_view clause;
  };
  // Module names of models whose adapters are as common as MiniMax-H3's.
  constexpr std::array<Hint, 8> kHints = {{
      {"cross_attn", "it looks like one for Wan"},
      {"self_attn.q.", "it looks like one for Wan"},
      {"double_blocks", "it looks like one for FLUX or HunyuanVideo"},
      {"single_transformer_blocks", "it looks like one for FLUX"},
      {"attn1.", "it looks like one for LTX-Video or Stable Diffusion"},
      {"down_blocks", "it looks like one for Stable Diffusion"},
      {"lora_te", "it looks like one for a text encoder"},
      {"text_model", "it looks like one for a text encoder"},
  }};
  const auto* found = std::find_if(kHints.begin(), kHints.end(), [&](const Hint& hint) {
    return name.find(hint.part) != std::string_view::npos;
  });
  return found == kHints.end() ? ""sv : found->clause;
}

}  // namespace miniacc
