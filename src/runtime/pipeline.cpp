#include "runtime/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "checkpoint/find_components.h"
#include "kernels/copy.h"
#include "model/dit/dit.h"
#include "model/text_encoder/encode_text.h"
#include "runtime/device_weights.h"

namespace miniacc {
namespace {

constexpr std::string_view kPadToken = "<|endoftext|>";

/// [2·A, C] rows, left channel first, to [2, C, A].
Tensor audio_rows_to_latents(Device& device, const Tensor& rows) {
  const std::int64_t num_latents = rows.shape()[0] / 2;
  const std::int64_t channels = rows.shape()[1];
  Tensor latents = empty_tensor(device, {2, channels, num_latents});
  const float* source = rows.f32().data();
  float* target = latents.f32().data();
  for (std::int64_t side = 0; side < 2; ++side) {
    for (std::int64_t a = 0; a < num_latents; ++a) {
      for (std::int64_t c = 0; c < channels; ++c) {
        target[(side * channels + c) * num_latents + a] =
            source[(side * num_latents + a) * channels + c];
      }
    }
  }
  return latents;
}

Result<std::unique_ptr<ComponentWeights>> open_part(const std::filesystem::path& path,
                                                    Component component) {
  return open_component(path, component);
}

std::filesystem::path first_given(const std::filesystem::path& given,
                                  const std::filesystem::path& found) {
  return given.empty() ? found : given;
}

/// Operations of one pass of transformer layers over `rows` rows: two a weight and row, and the two
/// attention products against `keys` keys.
double layer_flops(double rows, double keys, double weights, double attention_size) {
  return 2.0 * rows * weights + 4.0 * rows * keys * attention_size;
}

}  // namespace

Result<ResolvedPaths> resolve_paths(const ModelPaths& model) {
  ModelFiles found;
  if (!model.folder.empty()) {
    MINIACC_ASSIGN(found, find_components(model.folder));
  }
  ResolvedPaths paths{.transformer = first_given(model.transformer, found.transformer),
                      .text_encoder = first_given(model.text_encoder, found.text_encoder),
                      .tokenizer = first_given(model.tokenizer, found.tokenizer),
                      .video_vae = first_given(model.video_vae, found.video_vae),
                      .audio_vae = first_given(model.audio_vae, found.audio_vae)};
  const std::pair<const std::filesystem::path*, const char*> parts[] = {
      {&paths.transformer, "transformer (--diffusion-model)"},
      {&paths.text_encoder, "text encoder (--text-encoder)"},
      {&paths.tokenizer, "tokenizer (--tokenizer)"},
      {&paths.video_vae, "video VAE (--vae)"},
      {&paths.audio_vae, "audio VAE (--audio-vae)"}};
  for (const auto& [path, name] : parts) {
    if (path->empty()) {
      return fail(
          ErrorCode::kInvalidArgument,
          model.folder.empty()
              ? fmt::format("no {} was given; name a model folder with -m, or each part", name)
              : fmt::format("{} holds no {}, and none was given", model.folder.string(), name));
    }
  }
  return paths;
}

Result<Pipeline> Pipeline::open(const ModelPaths& model, Device& device, Precision precision,
                                std::size_t cache_budget_bytes) {
  MINIACC_ASSIGN(const ResolvedPaths paths, resolve_paths(model));
  MINIACC_ASSIGN(Tokenizer tokenizer, Tokenizer::open(paths.tokenizer));
  Pipeline pipeline(std::move(tokenizer));
  pipeline.device_ = &device;
  pipeline.precision_ = precision;
  pipeline.cache_budget_bytes_ = cache_budget_bytes;
  MINIACC_ASSIGN(pipeline.text_encoder_, open_part(paths.text_encoder, Component::kTextEncoder));
  MINIACC_ASSIGN(pipeline.transformer_, open_part(paths.transformer, Component::kTransformer));
  MINIACC_ASSIGN(pipeline.video_vae_, open_part(paths.video_vae, Component::kVideoVae));
  MINIACC_ASSIGN(pipeline.audio_vae_, open_part(paths.audio_vae, Component::kAudioVae));
  MINIACC_ASSIGN(pipeline.text_config_, read_text_encoder_config(*pipeline.text_encoder_));
  MINIACC_ASSIGN(pipeline.dit_config_, read_dit_config(*pipeline.transformer_));
  MINIACC_ASSIGN(pipeline.video_config_, video_vae::read_config(*pipeline.video_vae_));
  MINIACC_ASSIGN(pipeline.audio_config_, audio_vae::read_config(*pipeline.audio_vae_));
  MINIACC_RETURN_IF_ERROR(pipeline.check_parts_fit());
  return pipeline;
}

WeightSource& Pipeline::transformer() const {
  return adapted_ ? static_cast<WeightSource&>(*adapted_) : *transformer_;
}

Status Pipeline::merge_loras(const std::vector<LoraRequest>& loras, bool allow_partial,
                             int num_threads) {
  MINIACC_REQUIRE(!adapted_, "merge_loras: called twice");
  if (loras.empty()) {
    return {};
  }
  std::vector<Lora> opened;
  bool changes = false;
  for (const LoraRequest& request : loras) {
    MINIACC_ASSIGN(Lora lora, Lora::open(*transformer_, request, allow_partial));
    warnings_.insert(warnings_.end(), lora.warnings().begin(), lora.warnings().end());
    lora_reports_.push_back(lora.report());
    changes = changes || !lora.deltas().empty();
    opened.push_back(std::move(lora));
  }
  adapted_ = std::make_unique<AdaptedWeights>(*transformer_, std::move(opened), num_threads);
  const std::string& stored = transformer_->info().quantization;
  if (changes && precision_ == Precision::kInt8) {
    warnings_.push_back(
        "the adapters are merged before the weights are quantised to int8: changes below half a "
        "step of a row's scale are lost");
  } else if (changes && !stored.empty()) {
    warnings_.push_back(fmt::format(
        "the transformer is stored as {}; each layer that the adapters change is dequantised as it "
        "is read, and small changes may be below the resolution of its weights",
        stored));
  }
  return {};
}

Status Pipeline::check_parts_fit() const {
  if (text_config_.hidden_size != dit_config_.text_dim) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("the text encoder gives {} features and the transformer wants {}: they "
                            "are not of one model",
                            text_config_.hidden_size, dit_config_.text_dim));
  }
  if (tokenizer_.vocabulary_size() > text_config_.vocab_size) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("the tokenizer has ids up to {} and the text encoder's embedding {} "
                            "rows: they are not of one model",
                            tokenizer_.vocabulary_size() - 1, text_config_.vocab_size));
  }
  if (video_config_.latent_channels * kPatchArea != dit_config_.video_row_width) {
    return fail(
        ErrorCode::kInvalidInput,
        fmt::format("the video VAE has {} latent channels and the transformer {}: they are "
                    "not of one model",
                    video_config_.latent_channels, dit_config_.video_row_width / kPatchArea));
  }
  if (audio_config_.latent_channels != dit_config_.audio_row_width) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("the audio VAE has {} latent channels and the transformer {}: they are "
                            "not of one model",
                            audio_config_.latent_channels, dit_config_.audio_row_width));
  }
  if (audio_config_.sample_rate_hz != kSampleRateHz) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("the audio VAE works at {} Hz, only {} Hz is supported",
                            audio_config_.sample_rate_hz, kSampleRateHz));
  }
  return {};
}

Result<std::vector<std::int32_t>> Pipeline::tokenize(const std::string& prompt) const {
  MINIACC_RETURN_IF_ERROR(check_prompt_length(prompt));
  MINIACC_ASSIGN(std::vector<std::int32_t> ids, tokenizer_.encode(prompt));
  if (ids.empty()) {
    const auto pad = tokenizer_.id_of(kPadToken);
    if (!pad) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("an empty prompt stands for one {} token, which this tokenizer has "
                              "not",
                              kPadToken));
    }
    ids.push_back(*pad);
  }
  return ids;
}

std::string Pipeline::identity() const {
  return fmt::format("{}-{}-{}-{}", transformer().identity(), text_encoder_->identity(),
                     video_vae_->identity(), audio_vae_->identity());
}

StageCosts Pipeline::costs(const PreparedRequest& prepared, std::int64_t num_tokens) const {
  const ClipGeometry& geometry = prepared.geometry;
  const auto tokens = static_cast<double>(num_tokens);
  StageCosts costs;

  const auto& text = text_config_;
  const double text_attention = static_cast<double>(text.num_heads * text.head_dim);
  const double text_weights =
      static_cast<double>(text.hidden_size) *
      (2.0 * text_attention + 2.0 * static_cast<double>(text.num_kv_heads * text.head_dim) +
       3.0 * static_cast<double>(text.ffn_hidden_size));
  costs.text_encoding = static_cast<double>(text.num_used_layers) *
                        layer_flops(tokens, tokens, text_weights, text_attention);

  const double rows =
      tokens + 2.0 * static_cast<double>(geometry.audio_latents) +
      static_cast<double>(geometry.latent_frames * geometry.latent_height * geometry.latent_width) /
          static_cast<double>(kPatchArea);
  const auto dit_attention = static_cast<double>(dit_config_.attention_size());
  const double dit_weights =
      static_cast<double>(dit_config_.hidden_size) *
      (4.0 * dit_attention + 3.0 * static_cast<double>(dit_config_.ffn_hidden_size));
  costs.denoising = static_cast<double>(prepared.schedule.num_forwards()) *
                    static_cast<double>(dit_config_.num_layers) *
                    layer_flops(rows, rows, dit_weights, dit_attention);

  // Windows of 7 latent frames advance by 5; tiles of 16 × 16 latents overlap by at least 4.
  const auto vae_hidden = static_cast<double>(video_config_.hidden_size);
  const auto num_tiles = [](std::int64_t size) {
    return size <= 16 ? 1.0 : std::max(1.0, static_cast<double>(size - 4) / 12.0);
  };
  const double tile_rows =
      7.0 * static_cast<double>(std::min<std::int64_t>(16, geometry.latent_height) *
                                std::min<std::int64_t>(16, geometry.latent_width));
  const double windows = std::max(1.0, static_cast<double>(geometry.latent_frames - 2) / 5.0);
  costs.video_decoding =
      windows * num_tiles(geometry.latent_height) * num_tiles(geometry.latent_width) *
      static_cast<double>(video_config_.num_layers) *
      layer_flops(tile_rows, tile_rows,
                  vae_hidden *
                      (4.0 * vae_hidden + 3.0 * static_cast<double>(video_config_.ffn_hidden_size)),
                  vae_hidden);

  // Dominated by the residual blocks: per stage 6 convolutions a kernel, kernels 3 + 7 + 11.
  double audio = 0.0;
  double length = static_cast<double>(geometry.audio_latents);
  for (const auto& stage : audio_config_.stages) {
    length *= static_cast<double>(stage.rate);
    const auto channels = static_cast<double>(stage.out_channels);
    audio += 2.0 * length * channels * (6.0 * 21.0 * channels + 18.0 * 60.0);
  }
  costs.audio_decoding = 2.0 * audio;
  return costs;
}

Status Pipeline::check_latents(const ClipLatents& latents, const ClipGeometry& geometry) const {
  const Shape video = {video_config_.latent_channels, geometry.latent_frames,
                       geometry.latent_height, geometry.latent_width};
  const Shape audio = {2, audio_config_.latent_channels, geometry.audio_latents};
  if (latents.video.shape() != video || latents.audio.shape() != audio) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("the latents are {} and {}, this model and these sizes need {} and {}",
                            latents.video.shape().to_string(), latents.audio.shape().to_string(),
                            video.to_string(), audio.to_string()));
  }
  return {};
}

Result<Tensor> Pipeline::encode_text(OpContext& ctx, const std::vector<std::int32_t>& ids,
                                     JobProgress& progress) {
  progress.begin(kTextStage, text_config_.num_used_layers);
  DeviceWeights weights(*text_encoder_, *device_);
  auto hidden = miniacc::encode_text(
      ctx, weights, text_config_, ids, precision_, [&](std::int64_t finished, std::int64_t total) {
        progress.update(finished, static_cast<double>(finished) / static_cast<double>(total));
      });
  progress.end();
  if (hidden) {
    *hidden = to_host(ctx, *std::move(hidden));
  }
  return hidden;
}

Result<ClipLatents> Pipeline::denoise(OpContext& ctx, const PreparedRequest& prepared,
                                      ConstTensorView text_hidden, JobProgress& progress,
                                      std::vector<double>& step_seconds) {
  const ClipGeometry& geometry = prepared.geometry;
  const SigmaSchedule& schedule = prepared.schedule;
  const auto num_steps = static_cast<std::int64_t>(schedule.num_forwards());
  progress.begin(kDenoiseStage, num_steps);
  DeviceWeights weights(transformer(), *device_);
  MINIACC_ASSIGN(Dit dit, Dit::open(weights, ctx.device, precision_, cache_budget_bytes_));
  MINIACC_ASSIGN(const Tensor text, dit.refine_text(ctx, text_hidden));

  std::vector<float> times;
  for (std::size_t i = 0; i < schedule.num_forwards(); ++i) {
    times.push_back(1.0F - schedule.video[i]);
    times.push_back(1.0F - schedule.audio[i]);
  }
  ModulationCache modulation;
  MINIACC_RETURN_IF_ERROR(dit.prepare_modulation(ctx, times, modulation));

  const PackedSequence sequence = pack_t2va(
      text.shape()[0], {geometry.latent_frames, geometry.latent_height, geometry.latent_width},
      geometry.audio_latents);
  const Noise noise =
      draw_noise(*device_, prepared.noise, prepared.request.seed,
                 {video_config_.latent_channels, geometry.latent_frames, geometry.latent_height,
                  geometry.latent_width, audio_config_.latent_channels, geometry.audio_latents});
  const Shape video_shape = noise.video.shape();
  LatentRows rows{patchify(*device_, noise.video.view()),
                  empty_tensor(*device_, noise.audio.shape())};
  std::copy(noise.audio.f32().begin(), noise.audio.f32().end(), rows.audio.f32().begin());

  const auto model = [&](const LatentRows& latents, float t_video, float t_audio,
                         std::int64_t step) -> Result<LatentRows> {
    ctx.check_cancelled();
    const auto begin = std::chrono::steady_clock::now();
    const DitInput input{.video_rows = latents.video.view(),
                         .audio_rows = latents.audio.view(),
                         .refined_text = text.view(),
                         .video_time = t_video,
                         .audio_time = t_audio,
                         .sequence = sequence};
    MINIACC_ASSIGN(
        DitOutput velocity,
        dit.forward(ctx, input, modulation, [&](std::int64_t block, std::int64_t blocks) {
          const double done =
              static_cast<double>(step) + static_cast<double>(block) / static_cast<double>(blocks);
          progress.update(block == blocks ? step + 1 : step, done / static_cast<double>(num_steps));
        }));
    step_seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    return LatentRows{to_host(ctx, std::move(velocity.video)),
                      to_host(ctx, std::move(velocity.audio))};
  };
  MINIACC_ASSIGN(const std::int64_t forwards, sample_euler(schedule, rows, model));
  MINIACC_REQUIRE(forwards == static_cast<std::int64_t>(step_seconds.size()),
                  "denoise: every forward is timed once");
  progress.end();
  return ClipLatents{unpatchify(*device_, rows.video.view(), video_shape),
                     audio_rows_to_latents(*device_, rows.audio)};
}

Result<Tensor> Pipeline::decode_audio(OpContext& ctx, const ClipLatents& latents,
                                      JobProgress& progress) {
  progress.begin(kAudioStage, 1);
  DeviceWeights weights(*audio_vae_, *device_);
  MINIACC_ASSIGN(audio_vae::AudioVaeDecoder decoder,
                 audio_vae::AudioVaeDecoder::open(weights, ctx.device, cache_budget_bytes_));
  auto waveform = decoder.decode(ctx, latents.audio.view(),
                                 [&](double fraction) { progress.update(0, fraction); });
  progress.end();
  return waveform;
}

Status Pipeline::decode_video(OpContext& ctx, const ClipLatents& latents,
                              const video_vae::FrameSink& sink, JobProgress& progress) {
  DeviceWeights weights(*video_vae_, *device_);
  MINIACC_ASSIGN(
      video_vae::VideoVaeDecoder decoder,
      video_vae::VideoVaeDecoder::open(weights, ctx.device, precision_, cache_budget_bytes_));
  bool begun = false;
  video_vae::DecodeOptions options;
  options.rgb = true;
  options.progress = [&](const video_vae::Progress& state) {
    if (!begun) {
      progress.begin(kVideoStage, state.num_windows);
      begun = true;
    }
    progress.update(state.window, state.fraction);
  };
  MINIACC_ASSIGN(const video_vae::ClipShape shape,
                 decoder.decode(ctx, latents.video.view(), sink, options));
  (void)shape;
  progress.end();
  return {};
}

}  // namespace miniacc
