#include "checkpoint/name_rules.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace miniacc {
namespace {

using enum RowLayout;

constexpr NameRule kTransformerOfficial[] = {
    {"blocks.{}.attn.qkv_proj.weight", "blocks.{}.attn.qkv_proj.weight", kInterleavedQkv},
    {"token_refiner.blocks.{}.attn.qkv_proj.weight", "token_refiner.blocks.{}.attn.qkv_proj.weight",
     kInterleavedQkv},
    {"*", "*"},
};

constexpr NameRule kTransformerDiffusers[] = {
    {"audio_proj_in.*", "audio_patch_proj.*"},
    {"audio_proj_out.*", "final_layer.audio_out.*"},
    {"proj_in.*", "video_patch_proj.*"},
    {"proj_out.*", "final_layer.video_out.*"},
    {"context_embedder.*", "condition_proj.*"},
    {"time_embedder.linear_1.*", "time_embedder.proj_in.*"},
    {"time_embedder.linear_2.*", "time_embedder.proj_out.*"},
    {"norm_out.norm.*", "final_layer.norm.*"},
    {"norm_out.linear.*", "final_layer.adaln_proj.linear.*"},
    {"token_refiner.final_norm.*", "token_refiner.final_norm.*"},
    {"adaln_t_table", "adaln_t_table"},
#define MINIACC_DIFFUSERS_BLOCK(theirs, ours)                                                      \
  {theirs ".{}.attn.to_q.weight", ours ".{}.attn.qkv_proj.weight", kConcatenated, 0, 3},           \
      {theirs ".{}.attn.to_k.weight", ours ".{}.attn.qkv_proj.weight", kConcatenated, 1, 3},       \
      {theirs ".{}.attn.to_v.weight", ours ".{}.attn.qkv_proj.weight", kConcatenated, 2, 3},       \
      {theirs ".{}.attn.norm_q.*", ours ".{}.attn.q_norm.*"},                                      \
      {theirs ".{}.attn.norm_k.*", ours ".{}.attn.k_norm.*"},                                      \
      {theirs ".{}.attn.to_out.0.*", ours ".{}.attn.out_proj.*"},                                  \
      {theirs ".{}.ff.net.0.proj.weight", ours ".{}.mlp.fc1.weight", kSwappedHalves},              \
      {theirs ".{}.ff.net.2.*", ours ".{}.mlp.fc2.*"}, {theirs ".{}.norm1.*", ours ".{}.norm1.*"}, \
      {theirs ".{}.norm2.*", ours ".{}.norm2.*"}, {                                                \
    theirs ".{}.adaln_proj.linear.*", ours ".{}.adaln_proj.linear.*"                               \
  }
    MINIACC_DIFFUSERS_BLOCK("transformer_blocks", "blocks"),
    MINIACC_DIFFUSERS_BLOCK("token_refiner.refiner_blocks", "token_refiner.blocks"),
#undef MINIACC_DIFFUSERS_BLOCK
};

constexpr NameRule kTextOfficial[] = {
    {"model.visual.*", "visual.*"},
    {"lm_head.weight", "lm_head.weight"},
    {"model.language_model.*", "*"},
};

constexpr NameRule kTextComfy[] = {
    {"visual.*", "visual.*"},
    {"model.visual.*", "visual.*"},
    {"lm_head.weight", "lm_head.weight"},
    {"model.*", "*"},
};

constexpr NameRule kTextLlamaCpp[] = {
    {"token_embd.weight", "embed_tokens.weight"},
    {"output_norm.weight", "norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"blk.{}.attn_q.weight", "layers.{}.self_attn.q_proj.weight"},
    {"blk.{}.attn_k.weight", "layers.{}.self_attn.k_proj.weight"},
    {"blk.{}.attn_v.weight", "layers.{}.self_attn.v_proj.weight"},
    {"blk.{}.attn_output.weight", "layers.{}.self_attn.o_proj.weight"},
    {"blk.{}.attn_q_norm.weight", "layers.{}.self_attn.q_norm.weight"},
    {"blk.{}.attn_k_norm.weight", "layers.{}.self_attn.k_norm.weight"},
    {"blk.{}.attn_norm.weight", "layers.{}.input_layernorm.weight"},
    {"blk.{}.ffn_norm.weight", "layers.{}.post_attention_layernorm.weight"},
    {"blk.{}.ffn_gate.weight", "layers.{}.mlp.gate_proj.weight"},
    {"blk.{}.ffn_up.weight", "layers.{}.mlp.up_proj.weight"},
    {"blk.{}.ffn_down.weight", "layers.{}.mlp.down_proj.weight"},
    {"v.patch_embd.weight", "visual.patch_embed.proj.weight", kPatchSlots, 0, 2},
    {"v.patch_embd.weight.1", "visual.patch_embed.proj.weight", kPatchSlots, 1, 2},
    {"v.patch_embd.bias", "visual.patch_embed.proj.bias"},
    {"v.position_embd.weight", "visual.pos_embed.weight"},
    {"v.blk.{}.ln1.*", "visual.blocks.{}.norm1.*"},
    {"v.blk.{}.ln2.*", "visual.blocks.{}.norm2.*"},
    {"v.blk.{}.attn_qkv.*", "visual.blocks.{}.attn.qkv.*"},
    {"v.blk.{}.attn_out.*", "visual.blocks.{}.attn.proj.*"},
    {"v.blk.{}.ffn_up.*", "visual.blocks.{}.mlp.linear_fc1.*"},
    {"v.blk.{}.ffn_down.*", "visual.blocks.{}.mlp.linear_fc2.*"},
    {"v.post_ln.*", "visual.merger.norm.*"},
    {"mm.0.*", "visual.merger.linear_fc1.*"},
    {"mm.2.*", "visual.merger.linear_fc2.*"},
    // Numbered by vision block there and by position here; the reader renumbers.
    {"v.deepstack.{}.norm.*", "visual.deepstack_merger_list.{}.norm.*"},
    {"v.deepstack.{}.fc1.*", "visual.deepstack_merger_list.{}.linear_fc1.*"},
    {"v.deepstack.{}.fc2.*", "visual.deepstack_merger_list.{}.linear_fc2.*"},
    {"v.deepstack.{}.ffn_norm.*", "visual.deepstack_merger_list.{}.norm.*"},
    {"v.deepstack.{}.ffn_up.*", "visual.deepstack_merger_list.{}.linear_fc1.*"},
    {"v.deepstack.{}.ffn_down.*", "visual.deepstack_merger_list.{}.linear_fc2.*"},
    {"v.deepstack_merger_list.{}.*", "visual.deepstack_merger_list.{}.*"},
};

constexpr NameRule kVideoOfficial[] = {
    {"decoder.transformer_blocks.{}.attn.to_qkv.weight",
     "decoder.transformer_blocks.{}.attn.to_qkv.weight", kInterleavedQkv},
    {"decoder.transformer_blocks.{}.attn.to_qkv.bias",
     "decoder.transformer_blocks.{}.attn.to_qkv.bias", kInterleavedQkv},
    {"*", "*"},
};

constexpr NameRule kVideoDiffusers[] = {
    {"decoder.proj_in.*", "decoder.x_embedder.*"},
#define MINIACC_DIFFUSERS_QKV(leaf)                                             \
  {"decoder.transformer_blocks.{}.attn.to_q." leaf,                             \
   "decoder.transformer_blocks.{}.attn.to_qkv." leaf, kConcatenated, 0, 3},     \
      {"decoder.transformer_blocks.{}.attn.to_k." leaf,                         \
       "decoder.transformer_blocks.{}.attn.to_qkv." leaf, kConcatenated, 1, 3}, \
      {"decoder.transformer_blocks.{}.attn.to_v." leaf,                         \
       "decoder.transformer_blocks.{}.attn.to_qkv." leaf, kConcatenated, 2, 3}, \
  {                                                                             \
    "decoder.transformer_blocks.{}.ff.net.0.proj." leaf,                        \
        "decoder.transformer_blocks.{}.ff.w1." leaf, kSwappedHalves             \
  }
    MINIACC_DIFFUSERS_QKV("weight"),
    MINIACC_DIFFUSERS_QKV("bias"),
#undef MINIACC_DIFFUSERS_QKV
    {"decoder.transformer_blocks.{}.attn.to_out.0.*",
     "decoder.transformer_blocks.{}.attn.to_out.*"},
    {"decoder.transformer_blocks.{}.ff.net.2.*", "decoder.transformer_blocks.{}.ff.w2.*"},
    {"encoder.down_blocks.{}.resnets.{}.conv_shortcut.*",
     "encoder.down.{}.block.{}.nin_shortcut.*"},
    {"encoder.down_blocks.{}.resnets.{}.*", "encoder.down.{}.block.{}.*"},
    {"encoder.down_blocks.{}.downsamplers.0.*", "encoder.down.{}.downsample.*"},
    {"*", "*"},
};

constexpr NameRule kAudio[] = {{"*", "*"}};

/// Reads the digits at the front of `text`; empty when there are none.
std::string_view leading_digits(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size() && std::isdigit(static_cast<unsigned char>(text[length])) != 0) {
    ++length;
  }
  return text.substr(0, length);
}

}  // namespace

std::optional<std::string> rewrite(std::string_view name, std::string_view from,
                                   std::string_view to) {
  std::vector<std::string_view> numbers;
  std::string_view tail;
  bool has_tail = false;
  while (!from.empty()) {
    if (from.starts_with("{}")) {
      const std::string_view digits = leading_digits(name);
      if (digits.empty()) {
        return std::nullopt;
      }
      numbers.push_back(digits);
      name.remove_prefix(digits.size());
      from.remove_prefix(2);
    } else if (from == "*") {
      tail = name;
      has_tail = true;
      name = {};
      from = {};
    } else {
      if (name.empty() || name.front() != from.front()) {
        return std::nullopt;
      }
      name.remove_prefix(1);
      from.remove_prefix(1);
    }
  }
  if (!name.empty() || (has_tail && tail.empty())) {
    return std::nullopt;
  }
  std::string result;
  std::size_t next_number = 0;
  while (!to.empty()) {
    if (to.starts_with("{}")) {
      result += numbers.at(next_number++);
      to.remove_prefix(2);
    } else if (to == "*") {
      result += tail;
      to = {};
    } else {
      result += to.front();
      to.remove_prefix(1);
    }
  }
  return result;
}

std::span<const NameRule> name_rules(Component component, Naming naming) {
  switch (component) {
    case Component::kTransformer:
      return naming == Naming::kDiffusers ? std::span<const NameRule>(kTransformerDiffusers)
                                          : std::span<const NameRule>(kTransformerOfficial);
    case Component::kTextEncoder:
      if (naming == Naming::kLlamaCpp) {
        return kTextLlamaCpp;
      }
      return naming == Naming::kComfy ? std::span<const NameRule>(kTextComfy)
                                      : std::span<const NameRule>(kTextOfficial);
    case Component::kVideoVae:
      return naming == Naming::kDiffusers ? std::span<const NameRule>(kVideoDiffusers)
                                          : std::span<const NameRule>(kVideoOfficial);
    case Component::kAudioVae:
      return kAudio;
  }
  return {};
}

std::optional<MappedName> to_canonical(Component component, Naming naming,
                                       std::string_view stored) {
  if (component == Component::kAudioVae) {
    // Any convolution may be folded or weight-normed, in either of torch's spellings.
    constexpr std::array<NameRule, 4> kTails = {{
        {".weight_v", ".weight", kWeightNorm, 0, 2},
        {".weight_g", ".weight", kWeightNorm, 1, 2},
        {".parametrizations.weight.original1", ".weight", kWeightNorm, 0, 2},
        {".parametrizations.weight.original0", ".weight", kWeightNorm, 1, 2},
    }};
    for (const NameRule& tail : kTails) {
      if (stored.ends_with(tail.stored)) {
        std::string canonical(stored.substr(0, stored.size() - tail.stored.size()));
        return MappedName{canonical.append(tail.canonical), tail.layout, tail.part, tail.num_parts};
      }
    }
  }
  for (const NameRule& rule : name_rules(component, naming)) {
    if (auto canonical = rewrite(stored, rule.stored, rule.canonical)) {
      return MappedName{*std::move(canonical), rule.layout, rule.part, rule.num_parts};
    }
  }
  return std::nullopt;
}

std::vector<StoredName> to_stored(Component component, Naming naming, std::string_view canonical) {
  std::vector<StoredName> found;
  for (const NameRule& rule : name_rules(component, naming)) {
    auto stored = rewrite(canonical, rule.canonical, rule.stored);
    if (!stored || static_cast<int>(found.size()) != rule.part) {
      continue;
    }
    found.push_back({*std::move(stored), rule.layout, rule.part});
    if (static_cast<int>(found.size()) == rule.num_parts) {
      break;
    }
  }
  return found;
}

bool is_ignored(Component component, std::string_view canonical) {
  switch (component) {
    case Component::kTransformer:
      return false;
    case Component::kTextEncoder:
      return canonical == "norm.weight" || canonical == "lm_head.weight";
    case Component::kVideoVae:
      return canonical == "decoder.mask_token" || canonical == "latents_mean" ||
             canonical == "latents_std";
    case Component::kAudioVae:
      return canonical == "latents_mean" || canonical == "latents_std" ||
             canonical == "pre_block.attn.zero_k_bias";
  }
  return false;
}

}  // namespace miniacc
