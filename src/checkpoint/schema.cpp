#include "checkpoint/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "checkpoint/shape_reader.h"

namespace miniacc {
namespace {

constexpr std::int64_t kAdalnVectors = 6;  // shift, scale and gate of both branches
constexpr std::int64_t kPatchArea = 4;     // patch (1, 2, 2)

void add_linear(std::vector<ExpectedTensor>& list, const std::string& stem, std::int64_t out,
                std::int64_t in, const std::string& group = "") {
  list.push_back({stem + ".weight", {out, in}, false, group});
  list.push_back({stem + ".bias", {out}, false, group});
}

void add_norm(std::vector<ExpectedTensor>& list, const std::string& stem, std::int64_t size,
              const std::string& group = "") {
  list.push_back({stem + ".weight", {size}, false, group});
  list.push_back({stem + ".bias", {size}, false, group});
}

void add_transformer_block(std::vector<ExpectedTensor>& list, const std::string& stem,
                           const TransformerDims& dims) {
  const std::int64_t inner = dims.num_heads * dims.head_dim;
  list.push_back({stem + "norm1.weight", {dims.hidden_size}});
  list.push_back({stem + "norm2.weight", {dims.hidden_size}});
  list.push_back({stem + "attn.qkv_proj.weight", {3 * inner, dims.hidden_size}});
  list.push_back({stem + "attn.q_norm.weight", {dims.head_dim}});
  list.push_back({stem + "attn.k_norm.weight", {dims.head_dim}});
  list.push_back({stem + "attn.out_proj.weight", {dims.hidden_size, inner}});
  list.push_back({stem + "mlp.fc1.weight", {2 * dims.ffn_hidden_size, dims.hidden_size}});
  list.push_back({stem + "mlp.fc2.weight", {dims.hidden_size, dims.ffn_hidden_size}});
}

void add_vision(std::vector<ExpectedTensor>& list, const VisionDims& dims, std::int64_t out) {
  const std::string group = "vision tower";
  list.push_back({"visual.patch_embed.proj.weight",
                  {dims.hidden_size, dims.in_channels, dims.temporal_patch_size, dims.patch_size,
                   dims.patch_size},
                  false,
                  group});
  list.push_back({"visual.patch_embed.proj.bias", {dims.hidden_size}, false, group});
  list.push_back({"visual.pos_embed.weight", {dims.num_positions, dims.hidden_size}, false, group});
  for (std::int64_t b = 0; b < dims.depth; ++b) {
    const std::string stem = fmt::format("visual.blocks.{}.", b);
    add_norm(list, stem + "norm1", dims.hidden_size, group);
    add_norm(list, stem + "norm2", dims.hidden_size, group);
    add_linear(list, stem + "attn.qkv", 3 * dims.hidden_size, dims.hidden_size, group);
    add_linear(list, stem + "attn.proj", dims.hidden_size, dims.hidden_size, group);
    add_linear(list, stem + "mlp.linear_fc1", dims.ffn_hidden_size, dims.hidden_size, group);
    add_linear(list, stem + "mlp.linear_fc2", dims.hidden_size, dims.ffn_hidden_size, group);
  }
  const auto add_merger = [&](const std::string& stem, std::int64_t norm_size) {
    add_norm(list, stem + "norm", norm_size, group);
    add_linear(list, stem + "linear_fc1", dims.merged_size, dims.merged_size, group);
    add_linear(list, stem + "linear_fc2", out, dims.merged_size, group);
  };
  add_merger("visual.merger.", dims.hidden_size);
  for (std::int64_t j = 0; j < dims.num_deepstack; ++j) {
    add_merger(fmt::format("visual.deepstack_merger_list.{}.", j), dims.merged_size);
  }
}

Result<std::optional<VisionDims>> read_vision_dims(const ShapeReader& shapes) {
  const std::string patch = "visual.patch_embed.proj.weight";
  if (!shapes.has(patch)) {
    return std::nullopt;
  }
  VisionDims dims;
  MINIACC_ASSIGN(dims.hidden_size, shapes.dim(patch, 0, 5));
  MINIACC_ASSIGN(dims.in_channels, shapes.dim(patch, 1, 5));
  MINIACC_ASSIGN(dims.temporal_patch_size, shapes.dim(patch, 2, 5));
  MINIACC_ASSIGN(dims.patch_size, shapes.dim(patch, 3, 5));
  MINIACC_ASSIGN(dims.num_positions, shapes.dim("visual.pos_embed.weight", 0, 2));
  dims.depth =
      shapes.count_stems([](std::int64_t b) { return fmt::format("visual.blocks.{}.", b); },
                         {"norm1.weight", "attn.qkv.weight", "mlp.linear_fc1.weight"});
  MINIACC_ASSIGN(dims.ffn_hidden_size, shapes.dim("visual.blocks.0.mlp.linear_fc1.weight", 0, 2));
  MINIACC_ASSIGN(dims.merged_size, shapes.dim("visual.merger.linear_fc1.weight", 0, 2));
  dims.num_deepstack = shapes.count([](std::int64_t j) {
    return fmt::format("visual.deepstack_merger_list.{}.linear_fc1.weight", j);
  });
  return dims;
}

std::map<std::string, std::int64_t> report(const TransformerDims& dims) {
  std::map<std::string, std::int64_t> result = {
      {"hidden_size", dims.hidden_size},
      {"num_layers", dims.num_layers},
      {"num_refiner_layers", dims.num_refiner_layers},
      {"num_heads", dims.num_heads},
      {"head_dim", dims.head_dim},
      {"ffn_hidden_size", dims.ffn_hidden_size},
      {"video_latent_channels", dims.patch_features / kPatchArea},
      {"audio_latent_channels", dims.audio_channels},
      {"text_dim", dims.text_dim},
      {"time_embed_dim", dims.time_embed_dim},
      {"num_modalities", dims.num_modalities},
  };
  if (dims.table_rows > 0) {
    result["adaln_table_rows"] = dims.table_rows;
  } else {
    result["timestep_input_dim"] = dims.timestep_input_dim;
    result["time_embed_hidden_size"] = dims.time_embed_hidden_size;
  }
  return result;
}

std::map<std::string, std::int64_t> report(const TextEncoderDims& dims) {
  std::map<std::string, std::int64_t> result = {
      {"vocab_size", dims.vocab_size},
      {"hidden_size", dims.hidden_size},
      {"num_layers_used", dims.num_layers},
      {"num_heads", dims.num_heads},
      {"num_key_value_heads", dims.num_key_value_heads},
      {"head_dim", dims.head_dim},
      {"ffn_hidden_size", dims.ffn_hidden_size},
  };
  if (dims.vision) {
    result["vision_depth"] = dims.vision->depth;
    result["vision_hidden_size"] = dims.vision->hidden_size;
    result["vision_deepstack"] = dims.vision->num_deepstack;
  }
  return result;
}

std::map<std::string, std::int64_t> report(const VideoVaeDims& dims) {
  return {{"latent_channels", dims.latent_channels},
          {"hidden_size", dims.hidden_size},
          {"num_layers", dims.num_layers},
          {"ffn_hidden_size", dims.ffn_hidden_size},
          {"num_register_tokens", dims.num_register_tokens},
          {"encoder_stages", static_cast<std::int64_t>(dims.encoder_stages.size())}};
}

std::map<std::string, std::int64_t> report(const AudioVaeDims& dims) {
  return {{"latent_channels", dims.latent_channels},
          {"trunk_size", dims.trunk_size},
          {"decoder_channels", dims.decoder_channels},
          {"upsamplers", static_cast<std::int64_t>(dims.upsamplers.size())},
          {"encoder_stages", static_cast<std::int64_t>(dims.encoder_stages.size())}};
}

Fact one(std::int64_t value, std::string stack = "") {
  return {{static_cast<double>(value)}, std::move(stack)};
}

Facts facts(const TransformerDims& dims) {
  Facts result = {
      {"hidden_size", one(dims.hidden_size)},
      {"num_layers", one(dims.num_layers, "blocks")},
      {"num_refiner_layers", one(dims.num_refiner_layers, "token_refiner.blocks")},
      {"num_heads", one(dims.num_heads)},
      {"head_dim", one(dims.head_dim)},
      {"ffn_hidden_size", one(dims.ffn_hidden_size)},
      {"video_latent_channels", one(dims.patch_features / kPatchArea)},
      {"audio_latent_channels", one(dims.audio_channels)},
      {"text_dim", one(dims.text_dim)},
      {"adaln_out_features", one(dims.num_modalities * kAdalnVectors * dims.hidden_size)},
      {"final_adaln_out_features", one(2 * dims.hidden_size)},
  };
  // The pruned form keeps the config of the full one, whose time MLP it does not have.
  if (dims.table_rows == 0) {
    result["timestep_input_dim"] = one(dims.timestep_input_dim);
    result["time_embed_hidden_size"] = one(dims.time_embed_hidden_size);
    result["time_embed_dim"] = one(dims.time_embed_dim);
  }
  if (dims.rope_inv_freq_len > 0) {
    result["rope_inv_freq_len"] = one(dims.rope_inv_freq_len);
  }
  return result;
}

Facts facts(const TextEncoderDims& dims) {
  Facts result = {
      {"vocab_size", one(dims.vocab_size)},
      {"hidden_size", one(dims.hidden_size)},
      {"stored_layers", one(dims.num_stored_layers, "layers")},
      {"num_heads", one(dims.num_heads)},
      {"num_key_value_heads", one(dims.num_key_value_heads)},
      {"head_dim", one(dims.head_dim)},
      {"ffn_hidden_size", one(dims.ffn_hidden_size)},
  };
  if (dims.vision) {
    result["vision_depth"] = one(dims.vision->depth, "visual.blocks");
    result["vision_hidden_size"] = one(dims.vision->hidden_size);
    result["vision_ffn_hidden_size"] = one(dims.vision->ffn_hidden_size);
    result["vision_deepstack"] = one(dims.vision->num_deepstack, "visual.deepstack_merger_list");
  }
  return result;
}

void add_encoder_facts(Facts& result, const VideoVaeDims& dims) {
  if (dims.encoder_channels == 0 || dims.encoder_stages.empty()) {
    return;
  }
  Fact widths;
  Fact multipliers;
  std::set<std::size_t> num_blocks;
  for (const VideoEncoderStage& stage : dims.encoder_stages) {
    const auto width = static_cast<double>(stage.block_channels.back());
    widths.values.push_back(width);
    multipliers.values.push_back(width / static_cast<double>(dims.encoder_channels));
    num_blocks.insert(stage.block_channels.size());
  }
  result["encoder_channels"] = one(dims.encoder_channels);
  result["encoder_widths"] = std::move(widths);
  result["encoder_multipliers"] = std::move(multipliers);
  if (num_blocks.size() == 1) {
    result["encoder_blocks"] = one(static_cast<std::int64_t>(*num_blocks.begin()));
  }
}

Facts facts(const VideoVaeDims& dims) {
  const double mult =
      static_cast<double>(dims.ffn_hidden_size) / static_cast<double>(dims.hidden_size);
  Facts result = {{"latent_channels", one(dims.latent_channels)},
                  {"num_layers", one(dims.num_layers, "decoder.transformer_blocks")},
                  {"ffn_hidden_size", one(dims.ffn_hidden_size)},
                  {"ffn_mult", {{mult}}},
                  {"num_register_tokens", one(dims.num_register_tokens)}};
  add_encoder_facts(result, dims);
  return result;
}

Facts facts(const AudioVaeDims& dims) {
  Fact kernels;
  for (const AudioUpsampler& up : dims.upsamplers) {
    kernels.values.push_back(static_cast<double>(up.kernel));
  }
  const auto num_resblocks = static_cast<std::int64_t>(dims.resblock_kernels.size());
  Facts result = {
      {"latent_channels", one(dims.latent_channels)},
      {"trunk_size", one(dims.trunk_size)},
      {"decoder_channels", one(dims.decoder_channels)},
      {"upsamplers", one(static_cast<std::int64_t>(dims.upsamplers.size()), "decoder.ups")},
      {"decoder_kernel_sizes", std::move(kernels)},
      {"resblock_kernel_sizes", {{dims.resblock_kernels.begin(), dims.resblock_kernels.end()}}},
      {"resblock_dilations", one(num_resblocks * dims.num_dilations)}};
  if (dims.encoder_channels > 0) {
    Fact rates;
    for (const AudioEncoderStage& stage : dims.encoder_stages) {
      rates.values.push_back(static_cast<double>(stage.kernel) / 2.0);
    }
    result["encoder_channels"] = one(dims.encoder_channels);
    result["encoder_rates"] = std::move(rates);
  }
  return result;
}

}  // namespace

std::vector<ExpectedTensor> transformer_tensors(const TransformerDims& dims) {
  const std::int64_t hidden = dims.hidden_size;
  std::vector<ExpectedTensor> list;
  add_linear(list, "video_patch_proj", hidden, dims.patch_features);
  add_linear(list, "audio_patch_proj", hidden, dims.audio_channels);
  add_linear(list, "condition_proj", hidden, dims.text_dim);
  if (dims.table_rows > 0) {
    list.push_back({"adaln_t_table", {dims.table_rows, dims.time_embed_dim}});
  } else {
    add_linear(list, "time_embedder.proj_in", dims.time_embed_hidden_size, dims.timestep_input_dim);
    add_linear(list, "time_embedder.proj_out", dims.time_embed_dim, dims.time_embed_hidden_size);
  }
  list.push_back({"rope.inv_freq", {dims.rope_inv_freq_len}, true});
  for (std::int64_t i = 0; i < dims.num_refiner_layers; ++i) {
    add_transformer_block(list, fmt::format("token_refiner.blocks.{}.", i), dims);
  }
  list.push_back({"token_refiner.final_norm.weight", {hidden}});
  for (std::int64_t i = 0; i < dims.num_layers; ++i) {
    const std::string stem = fmt::format("blocks.{}.", i);
    add_transformer_block(list, stem, dims);
    add_linear(list, stem + "adaln_proj.linear", dims.num_modalities * kAdalnVectors * hidden,
               dims.time_embed_dim);
  }
  list.push_back({"final_layer.norm.weight", {hidden}});
  add_linear(list, "final_layer.adaln_proj.linear", 2 * hidden, dims.time_embed_dim);
  add_linear(list, "final_layer.video_out", dims.patch_features, hidden);
  add_linear(list, "final_layer.audio_out", dims.audio_channels, hidden);
  return list;
}

Result<TransformerDims> read_transformer_dims(const ShapeLookup& lookup, const std::string& where) {
  const ShapeReader shapes(lookup, where);
  TransformerDims dims;
  MINIACC_ASSIGN(dims.hidden_size, shapes.dim("audio_patch_proj.weight", 0, 2));
  MINIACC_ASSIGN(dims.audio_channels, shapes.dim("audio_patch_proj.weight", 1, 2));
  MINIACC_ASSIGN(dims.patch_features, shapes.dim("video_patch_proj.weight", 1, 2));
  MINIACC_RETURN_IF_ERROR(
      shapes.divide(dims.patch_features, kPatchArea, "number of video_patch_proj.weight columns")
          .map([](std::int64_t) {}));
  MINIACC_ASSIGN(dims.text_dim, shapes.dim("condition_proj.weight", 1, 2));
  MINIACC_ASSIGN(dims.head_dim, shapes.dim("blocks.0.attn.q_norm.weight", 0, 1));
  MINIACC_ASSIGN(const std::int64_t qkv_rows, shapes.dim("blocks.0.attn.qkv_proj.weight", 0, 2));
  MINIACC_ASSIGN(dims.num_heads, shapes.divide(qkv_rows, 3 * dims.head_dim,
                                               "number of blocks.0.attn.qkv_proj.weight rows"));
  MINIACC_ASSIGN(const std::int64_t fc1_rows, shapes.dim("blocks.0.mlp.fc1.weight", 0, 2));
  MINIACC_ASSIGN(dims.ffn_hidden_size,
                 shapes.divide(fc1_rows, 2, "number of blocks.0.mlp.fc1.weight rows"));
  const auto count_blocks = [&](std::string_view stack) {
    return shapes.count_stems(
        [stack](std::int64_t i) { return fmt::format("{}.{}.", stack, i); },
        {"norm1.weight", "norm2.weight", "attn.qkv_proj.weight", "mlp.fc1.weight"});
  };
  dims.num_layers = count_blocks("blocks");
  dims.num_refiner_layers = count_blocks("token_refiner.blocks");
  if (shapes.has("adaln_t_table")) {
    MINIACC_ASSIGN(dims.table_rows, shapes.dim("adaln_t_table", 0, 2));
    MINIACC_ASSIGN(dims.time_embed_dim, shapes.dim("adaln_t_table", 1, 2));
    if (dims.table_rows < 2) {
      return fail(
          ErrorCode::kInvalidInput,
          fmt::format("{}: adaln_t_table has {} rows, wanted at least 2", where, dims.table_rows));
    }
  } else {
    MINIACC_ASSIGN(dims.timestep_input_dim, shapes.dim("time_embedder.proj_in.weight", 1, 2));
    MINIACC_ASSIGN(dims.time_embed_hidden_size, shapes.dim("time_embedder.proj_in.weight", 0, 2));
    MINIACC_ASSIGN(dims.time_embed_dim, shapes.dim("time_embedder.proj_out.weight", 0, 2));
  }
  MINIACC_ASSIGN(const std::int64_t adaln_rows,
                 shapes.dim("blocks.0.adaln_proj.linear.weight", 0, 2));
  MINIACC_ASSIGN(dims.num_modalities,
                 shapes.divide(adaln_rows, kAdalnVectors * dims.hidden_size,
                               "number of blocks.0.adaln_proj.linear.weight rows"));
  if (shapes.has("rope.inv_freq")) {
    MINIACC_ASSIGN(dims.rope_inv_freq_len, shapes.dim("rope.inv_freq", 0, 1));
  }
  return dims;
}

std::vector<ExpectedTensor> text_encoder_tensors(const TextEncoderDims& dims) {
  const std::int64_t hidden = dims.hidden_size;
  std::vector<ExpectedTensor> list;
  list.push_back({"embed_tokens.weight", {dims.vocab_size, hidden}});
  for (std::int64_t i = 0; i < dims.num_layers; ++i) {
    const std::string stem = fmt::format("layers.{}.", i);
    const std::int64_t q_size = dims.num_heads * dims.head_dim;
    const std::int64_t kv_size = dims.num_key_value_heads * dims.head_dim;
    list.push_back({stem + "self_attn.q_proj.weight", {q_size, hidden}});
    list.push_back({stem + "self_attn.k_proj.weight", {kv_size, hidden}});
    list.push_back({stem + "self_attn.v_proj.weight", {kv_size, hidden}});
    list.push_back({stem + "self_attn.o_proj.weight", {hidden, q_size}});
    list.push_back({stem + "self_attn.q_norm.weight", {dims.head_dim}});
    list.push_back({stem + "self_attn.k_norm.weight", {dims.head_dim}});
    list.push_back({stem + "input_layernorm.weight", {hidden}});
    list.push_back({stem + "post_attention_layernorm.weight", {hidden}});
    list.push_back({stem + "mlp.gate_proj.weight", {dims.ffn_hidden_size, hidden}});
    list.push_back({stem + "mlp.up_proj.weight", {dims.ffn_hidden_size, hidden}});
    list.push_back({stem + "mlp.down_proj.weight", {hidden, dims.ffn_hidden_size}});
  }
  if (dims.vision) {
    add_vision(list, *dims.vision, hidden);
  }
  return list;
}

Result<TextEncoderDims> read_text_encoder_dims(const ShapeLookup& lookup,
                                               std::optional<std::int64_t> wanted_layers,
                                               const std::string& where) {
  const ShapeReader shapes(lookup, where);
  TextEncoderDims dims;
  MINIACC_ASSIGN(dims.vocab_size, shapes.dim("embed_tokens.weight", 0, 2));
  MINIACC_ASSIGN(dims.hidden_size, shapes.dim("embed_tokens.weight", 1, 2));
  const std::int64_t stored = shapes.count_stems(
      [](std::int64_t i) { return fmt::format("layers.{}.", i); },
      {"input_layernorm.weight", "self_attn.q_proj.weight", "mlp.up_proj.weight"});
  dims.num_stored_layers = stored;
  dims.num_layers = std::min(stored, wanted_layers.value_or(kReleasedTextLayers));
  MINIACC_ASSIGN(dims.head_dim, shapes.dim("layers.0.self_attn.q_norm.weight", 0, 1));
  MINIACC_ASSIGN(const std::int64_t q_rows, shapes.dim("layers.0.self_attn.q_proj.weight", 0, 2));
  MINIACC_ASSIGN(const std::int64_t k_rows, shapes.dim("layers.0.self_attn.k_proj.weight", 0, 2));
  MINIACC_ASSIGN(dims.num_heads, shapes.divide(q_rows, dims.head_dim,
                                               "number of layers.0.self_attn.q_proj.weight rows"));
  MINIACC_ASSIGN(
      dims.num_key_value_heads,
      shapes.divide(k_rows, dims.head_dim, "number of layers.0.self_attn.k_proj.weight rows"));
  MINIACC_RETURN_IF_ERROR(
      shapes.divide(dims.num_heads, dims.num_key_value_heads, "number of query heads")
          .map([](std::int64_t) {}));
  MINIACC_ASSIGN(dims.ffn_hidden_size, shapes.dim("layers.0.mlp.gate_proj.weight", 0, 2));
  MINIACC_ASSIGN(dims.vision, read_vision_dims(shapes));
  return dims;
}

Result<Schema> read_schema(Component component, const ShapeLookup& shapes,
                           std::optional<std::int64_t> wanted_layers, const std::string& where) {
  switch (component) {
    case Component::kTransformer: {
      MINIACC_ASSIGN(const auto dims, read_transformer_dims(shapes, where));
      return Schema{transformer_tensors(dims), report(dims), facts(dims)};
    }
    case Component::kTextEncoder: {
      MINIACC_ASSIGN(const auto dims, read_text_encoder_dims(shapes, wanted_layers, where));
      return Schema{text_encoder_tensors(dims), report(dims), facts(dims)};
    }
    case Component::kVideoVae: {
      MINIACC_ASSIGN(const auto dims, read_video_vae_dims(shapes, where));
      return Schema{video_vae_tensors(dims), report(dims), facts(dims), dims.encoder_problem};
    }
    case Component::kAudioVae: {
      MINIACC_ASSIGN(const auto dims, read_audio_vae_dims(shapes, where));
      return Schema{audio_vae_tensors(dims), report(dims), facts(dims), dims.encoder_problem};
    }
  }
  MINIACC_REQUIRE(false, "read_schema: unknown component");
}

}  // namespace miniacc
