#include "checkpoint/synthetic_configs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/text_file.h"

namespace miniacc {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kPatchArea = 4;

// Means and deviations are stored as f32 tensors in single files; the same values everywhere.
ordered_json as_floats(const std::vector<double>& values) {
  ordered_json list = ordered_json::array();
  for (const double value : values) {
    list.push_back(static_cast<double>(static_cast<float>(value)));
  }
  return list;
}

ordered_json official_transformer(const SyntheticModel& model) {
  const TransformerDims& dims = model.transformer;
  return {{"_class_name", "MiniMaxH3DiTModel"},
          {"hidden_size", dims.hidden_size},
          {"num_layers", dims.num_layers},
          {"token_refiner_num_layers", dims.num_refiner_layers},
          {"num_attention_heads", dims.num_heads},
          {"attention_head_dim", dims.head_dim},
          {"ffn_hidden_size", dims.ffn_hidden_size},
          {"latents_dim", dims.patch_features / kPatchArea},
          {"audio_latents_dim", dims.audio_channels},
          {"patch_size", {1, 2, 2}},
          {"text_dim", dims.text_dim},
          {"timestep_input_dim", dims.timestep_input_dim},
          {"time_embed_hidden_size", dims.time_embed_hidden_size},
          {"time_embed_dim", dims.time_embed_dim},
          {"rope_inv_freq_len", dims.rope_inv_freq_len},
          {"norm_eps", 1e-5},
          {"qk_norm_eps", 1e-5},
          {"final_norm_eps", 1e-5}};
}

ordered_json diffusers_transformer(const SyntheticModel& model) {
  const TransformerDims& dims = model.transformer;
  return {{"_class_name", "MiniMaxH3Transformer3DModel"},
          {"num_attention_heads", dims.num_heads},
          {"attention_head_dim", dims.head_dim},
          {"hidden_size", dims.hidden_size},
          {"num_layers", dims.num_layers},
          {"num_refiner_layers", dims.num_refiner_layers},
          {"ffn_dim", dims.ffn_hidden_size},
          {"in_channels", dims.patch_features / kPatchArea},
          {"audio_in_channels", dims.audio_channels},
          {"patch_size", {1, 2, 2}},
          {"text_dim", dims.text_dim},
          {"freq_dim", dims.timestep_input_dim},
          {"time_embed_hidden_dim", dims.time_embed_hidden_size},
          {"time_embed_dim", dims.time_embed_dim},
          {"rope_freq_dim", dims.rope_inv_freq_len},
          {"rope_theta", 10000.0},
          {"norm_eps", 1e-5},
          {"qk_norm_eps", 1e-5},
          {"final_norm_eps", 1e-5}};
}

ordered_json text_encoder(const SyntheticModel& model, std::int64_t stored_layers) {
  const TextEncoderDims& dims = model.text_encoder;
  const VisionDims& vision = *dims.vision;
  return {{"architectures", {"Qwen3VLForConditionalGeneration"}},
          {"model_type", "qwen3_vl"},
          {"conditioning_layer", dims.num_layers},
          {"tie_word_embeddings", false},
          {"text_config",
           {{"model_type", "qwen3_vl_text"},
            {"attention_bias", false},
            {"head_dim", dims.head_dim},
            {"hidden_act", "silu"},
            {"hidden_size", dims.hidden_size},
            {"intermediate_size", dims.ffn_hidden_size},
            {"num_attention_heads", dims.num_heads},
            {"num_hidden_layers", stored_layers},
            {"num_key_value_heads", dims.num_key_value_heads},
            {"rms_norm_eps", 1e-6},
            {"rope_scaling",
             {{"mrope_interleaved", true},
              {"mrope_section", model.mrope_section},
              {"rope_type", "default"}}},
            {"rope_theta", 5000000},
            {"vocab_size", dims.vocab_size}}},
          {"vision_config",
           {{"model_type", "qwen3_vl"},
            {"deepstack_visual_indexes", model.deepstack_blocks},
            {"depth", vision.depth},
            {"hidden_act", "gelu_pytorch_tanh"},
            {"hidden_size", vision.hidden_size},
            {"in_channels", vision.in_channels},
            {"intermediate_size", vision.ffn_hidden_size},
            {"num_heads", model.vision_heads},
            {"num_position_embeddings", vision.num_positions},
            {"out_hidden_size", dims.hidden_size},
            {"patch_size", vision.patch_size},
            {"spatial_merge_size", 2},
            {"temporal_patch_size", vision.temporal_patch_size}}}};
}

std::vector<std::int64_t> encoder_channels(const SyntheticModel& model) {
  std::vector<std::int64_t> channels;
  for (const VideoEncoderStage& stage : model.video_vae.encoder_stages) {
    channels.push_back(stage.block_channels.front());
  }
  return channels;
}

ordered_json diffusers_video_vae(const SyntheticModel& model) {
  const VideoVaeDims& dims = model.video_vae;
  return {{"_class_name", "AutoencoderKLMiniMaxH3"},
          {"in_channels", 3},
          {"out_channels", 3},
          {"latent_channels", dims.latent_channels},
          {"block_out_channels", encoder_channels(model)},
          {"layers_per_block", 2},
          {"spatial_downsample_factors", {2, 2, 2, 2, 1, 1}},
          {"temporal_downsample_factors", {1, 2, 2, 1, 1, 1}},
          {"norm_num_groups", model.video_vae_groups},
          {"norm_eps", 1e-6},
          {"spatial_padding_mode", "reflect"},
          {"decoder_num_layers", dims.num_layers},
          {"decoder_num_attention_heads", model.video_vae_heads},
          {"decoder_attention_head_dim", dims.hidden_size / model.video_vae_heads},
          {"decoder_num_register_tokens", dims.num_register_tokens},
          {"decoder_ffn_mult", dims.ffn_hidden_size / dims.hidden_size},
          {"decoder_rope_theta", 100.0},
          {"decoder_rope_dim_ratio", 0.75},
          {"decoder_norm_eps", 1e-5},
          {"clip_length", 17},
          {"token_drop", 3},
          {"latents_mean", as_floats(model.video_latents_mean)},
          {"latents_std", as_floats(model.video_latents_std)}};
}

ordered_json official_video_vae(const SyntheticModel& model) {
  return {{"_class_name", "MiniMaxH3VideoVAE"},
          {"source_path", "source"},
          {"source_class_name", "AutoencoderKLLegacy"},
          {"vae_clip_length", 17},
          {"vae_token_drop", 3},
          {"vae_encoder_tiling", 1},
          {"vae_decoder_tiling", 1},
          {"vae_tile_size", 256},
          {"vae_tile_overlap_min", 64},
          {"source_safetensors_path", "model.safetensors"},
          {"latent_channels", model.video_vae.latent_channels},
          {"latents_mean", as_floats(model.video_latents_mean)},
          {"latents_std", as_floats(model.video_latents_std)}};
}

ordered_json official_video_source(const SyntheticModel& model) {
  const std::vector<std::int64_t> channels = encoder_channels(model);
  std::vector<std::int64_t> multipliers;
  multipliers.reserve(channels.size());
  for (const std::int64_t value : channels) {
    multipliers.push_back(value / channels.front());
  }
  return {{"_class_name", "AutoencoderKLLegacy"},
          {"ch", channels.front()},
          {"ch_mult", multipliers},
          {"embed_dim", model.video_vae.latent_channels},
          {"in_channels", 3},
          {"norm_num_groups", model.video_vae_groups},
          {"num_res_blocks", 2},
          {"out_ch", 3},
          {"padding_mode", "reflect"},
          {"space_down", {2, 2, 2, 2, 1, 1}},
          {"time_down", {1, 2, 2, 1, 1, 1}},
          {"vae_ratio", 16},
          {"vae_ratio_t", 4},
          {"use_vit_decoder", true},
          {"vit_decoder_kwargs",
           {{"dim_head", model.video_vae.hidden_size / model.video_vae_heads},
            {"ffn_activation_fn", "silu"},
            {"heads", model.video_vae_heads},
            {"norm_type", "rms_norm"},
            {"num_layers", model.video_vae.num_layers},
            {"rope_dim_ratio", 0.75},
            {"rope_theta", 100.0}}},
          {"z_channels", model.video_vae.latent_channels}};
}

std::vector<std::int64_t> upsampler_kernels(const SyntheticModel& model) {
  std::vector<std::int64_t> kernels;
  for (const AudioUpsampler& up : model.audio_vae.upsamplers) {
    kernels.push_back(up.kernel);
  }
  return kernels;
}

/// Eight as in the released model, fewer where its heads would be narrower than the latents that
/// they are pooled to.
std::int64_t audio_encoder_heads(const AudioVaeDims& dims) {
  return std::min<std::int64_t>(8, dims.trunk_size / dims.latent_channels);
}

ordered_json diffusers_audio_vae(const SyntheticModel& model) {
  const AudioVaeDims& dims = model.audio_vae;
  return {{"_class_name", "AutoencoderKLMiniMaxH3Audio"},
          {"encoder_dim", dims.encoder_channels},
          {"encoder_rates", {2, 4, 4, 5, 5}},
          {"num_attention_heads", audio_encoder_heads(dims)},
          {"latent_dim", dims.trunk_size},
          {"latent_channels", dims.latent_channels},
          {"decoder_dim", dims.decoder_channels},
          {"decoder_rates", model.audio_rates},
          {"decoder_kernel_sizes", upsampler_kernels(model)},
          {"resblock_kernel_sizes", dims.resblock_kernels},
          {"resblock_dilation_sizes", {{1, 3, 5}, {1, 3, 5}, {1, 3, 5}}},
          {"sampling_rate", 32000},
          {"latents_mean", as_floats(model.audio_latents_mean)},
          {"latents_std", as_floats(model.audio_latents_std)}};
}

ordered_json official_audio_vae(const SyntheticModel& model) {
  return {{"_class_name", "MiniMaxH3AudioVAE"},
          {"output_channel", 2},
          {"sample_rate", 32000},
          {"source_safetensors_path", "model.safetensors"},
          {"source_metadata_path", "metadata.json"},
          {"latent_channels", model.audio_vae.latent_channels},
          {"latents_mean", as_floats(model.audio_latents_mean)},
          {"latents_std", as_floats(model.audio_latents_std)}};
}

ordered_json official_audio_metadata(const SyntheticModel& model) {
  return {{"metadata",
           {{"kwargs",
             {{"decoder_dim", model.audio_vae.decoder_channels},
              {"decoder_rates", model.audio_rates},
              {"decoder_type", "bigvgan"},
              {"encoder_dim", model.audio_vae.encoder_channels},
              {"encoder_rates", {2, 4, 4, 5, 5}},
              {"num_attention_heads", audio_encoder_heads(model.audio_vae)},
              {"latent_dim", model.audio_vae.trunk_size},
              {"sample_rate", 32000},
              {"vae_latent_channels", model.audio_vae.latent_channels}}}}}};
}

/// Lists that a model does not have are not said to be empty.
ordered_json without_empty_lists(ordered_json value) {
  for (const char* key : {"latents_mean", "latents_std"}) {
    if (value.contains(key) && value.at(key).empty()) {
      value.erase(key);
    }
  }
  return value;
}

}  // namespace

std::filesystem::path component_folder(Component component, CheckpointFormat format) {
  switch (component) {
    case Component::kTransformer:
      return "transformer";
    case Component::kTextEncoder:
      return "text_encoder";
    case Component::kVideoVae:
      return format == CheckpointFormat::kDiffusers ? "vae" : "video_vae";
    case Component::kAudioVae:
      return "audio_vae";
  }
  return {};
}

std::vector<ConfigFile> component_configs(const SyntheticModel& model, Component component,
                                          CheckpointFormat format) {
  const bool diffusers = format == CheckpointFormat::kDiffusers;
  switch (component) {
    case Component::kTransformer:
      return {
          {"config.json", diffusers ? diffusers_transformer(model) : official_transformer(model)}};
    case Component::kTextEncoder:
      return {{"config.json", text_encoder(model, model.stored_text_layers)}};
    case Component::kVideoVae:
      if (diffusers) {
        return {{"config.json", without_empty_lists(diffusers_video_vae(model))}};
      }
      return {{"config.json", without_empty_lists(official_video_vae(model))},
              {"source/config.json", official_video_source(model)}};
    case Component::kAudioVae:
      if (diffusers) {
        return {{"config.json", without_empty_lists(diffusers_audio_vae(model))}};
      }
      return {{"config.json", without_empty_lists(official_audio_vae(model))},
              {"metadata.json", official_audio_metadata(model)}};
  }
  return {};
}

ordered_json model_index(CheckpointFormat format, std::optional<ModelHalf> half) {
  ordered_json index;
  if (format == CheckpointFormat::kDiffusers) {
    index = {{"_class_name", "MiniMaxH3ModularPipeline"},
             {"text_encoder", {"transformers", "Qwen3VLForConditionalGeneration"}},
             {"tokenizer", {"transformers", "Qwen2TokenizerFast"}},
             {"vae", {"diffusers", "AutoencoderKLMiniMaxH3"}},
             {"audio_vae", {"diffusers", "AutoencoderKLMiniMaxH3Audio"}},
             {"transformer", {"diffusers", "MiniMaxH3Transformer3DModel"}}};
  } else {
    index = {{"_class_name", "MiniMaxH3Pipeline"},
             {"text_encoder", {"transformers", "MiniMaxH3Qwen3VLHFEncoder"}},
             {"tokenizer", {"transformers", "Qwen2TokenizerFast"}},
             {"video_vae", {"diffusers", "MiniMaxH3VideoVAE"}},
             {"audio_vae", {"diffusers", "MiniMaxH3AudioVAE"}},
             {"transformer", {"diffusers", "MiniMaxH3DiTModel"}}};
  }
  if (half) {
    index["_minimax_h3"]["partition"] = *half == ModelHalf::kFl2va ? "fl2va" : "ref2va";
  }
  return index;
}

Status write_synthetic_configs(const SyntheticModel& model, CheckpointFormat format,
                               const std::filesystem::path& folder) {
  for (const Component component : {Component::kTransformer, Component::kTextEncoder,
                                    Component::kVideoVae, Component::kAudioVae}) {
    for (const ConfigFile& file : component_configs(model, component, format)) {
      MINIACC_RETURN_IF_ERROR(write_text_file(
          folder / component_folder(component, format) / file.path, file.content.dump(2) + '\n'));
    }
  }
  return write_text_file(folder / "model_index.json",
                         model_index(format, ModelHalf::kFl2va).dump(2) + '\n');
}

ordered_json single_file_json(const SyntheticModel& model, Component component) {
  switch (component) {
    case Component::kTransformer:
      return diffusers_transformer(model);
    case Component::kTextEncoder:
      return text_encoder(model, model.text_encoder.num_layers);
    case Component::kVideoVae:
      return without_empty_lists(diffusers_video_vae(model));
    case Component::kAudioVae:
      return without_empty_lists(diffusers_audio_vae(model));
  }
  return {};
}

std::string single_file_config(const SyntheticModel& model, Component component) {
  return single_file_json(model, component).dump();
}

}  // namespace miniacc
