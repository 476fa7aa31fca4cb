#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace miniacc {

/// Whose module names an adapter file uses. It decides the order of rows: official names have fused
/// [Q;K;V] and gate before value, diffusers names have q, k and v apart and value before gate.
/// Source: spec adapters.md §2.
enum class AdapterVocabulary {
  kEither,     ///< spelt alike in both (the refiner's final norm)
  kOfficial,   ///< blocks.3.attn.qkv_proj
  kDiffusers,  ///< transformer_blocks.3.attn.to_q
  kFlat,       ///< lora_unet_blocks_3_attn_qkv_proj
};

/// What one tensor of an adapter is to its module.
enum class AdapterRole {
  kDown,         ///< A, [rank, in]
  kUp,           ///< B, [out, rank]
  kAlpha,        ///< numerator of the scale, one value
  kDiff,         ///< dense change of the weight
  kDiffBias,     ///< dense change of the bias
  kReplacement,  ///< a whole new tensor, such as a head bank
  kUnsupported,  ///< a known method other than plain low rank (DoRA, LoCon, reshaped weights)
};

/// A tensor name of an adapter, taken apart as prefix, module and suffix.
struct AdapterName {
  std::string prefix;         ///< "diffusion_model.", possibly two of them
  std::string stored_module;  ///< as in the file, without prefix
  std::string module;         ///< canonical, e.g. "blocks.3.attn.qkv_proj"
  AdapterVocabulary vocabulary = AdapterVocabulary::kEither;
  AdapterRole role = AdapterRole::kDown;
  std::optional<int> qkv_part;  ///< 0, 1, 2: q, k, v of the fused module
  bool value_first = false;     ///< fc1 in diffusers' order
  bool default_infix = false;   ///< ".default." as PEFT writes a named adapter
};

/// Empty when prefix, module or suffix is none of MiniMax-H3's.
[[nodiscard]] std::optional<AdapterName> parse_adapter_name(std::string_view name);

/// The diffusers name of a canonical module; `qkv_part` 0, 1, 2 names q, k, v of a fused one. Empty
/// when there is no such module (a fused one without a part has none).
[[nodiscard]] std::optional<std::string> diffusers_module_name(std::string_view canonical,
                                                               std::optional<int> qkv_part);

/// Which other model a name belongs to, as a clause ("it looks like one for Wan"); empty when
/// nothing is recognised.
[[nodiscard]] std::string_view guess_other_family(std::string_view name);

}  // namespace miniacc
