#include "runtime/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "checkpoint/find_components.h"
#include "checkpoint/model_half.h"
#include "kernels/attention.h"
#include "kernels/copy.h"
#include "model/dit/dit.h"
#include "runtime/compute_device.h"
#include "runtime/device_weights.h"
#include "runtime/frame_queue.h"
#include "runtime/pdd.h"

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

/// [2, C, A] to [2·A, C] rows, left channel first.
void audio_latents_to_rows(const Tensor& latents, float* rows) {
  const std::int64_t channels = latents.shape()[1];
  const std::int64_t num_latents = latents.shape()[2];
  const float* source = latents.f32().data();
  for (std::int64_t side = 0; side < 2; ++side) {
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t a = 0; a < num_latents; ++a) {
        rows[(side * num_latents + a) * channels + c] = *source++;
      }
    }
  }
}

ModelHalf half_of_task(Task task) {
  return task == Task::kRef2va ? ModelHalf::kRef2va : ModelHalf::kFl2va;
}

/// Rows of one stream as the transformer reads them: conditions, which never change, then the
/// clip's own, which are written before each evaluation.
class StreamRows {
 public:
  StreamRows(Device& device, std::int64_t num_rows, std::int64_t width)
      : rows_(empty_tensor(device, {num_rows, width})) {}

  /// Room for the next condition.
  [[nodiscard]] std::span<float> append(std::int64_t num_values) {
    const std::span<float> room = rows_.f32().subspan(static_cast<std::size_t>(filled_));
    MINIACC_REQUIRE(num_values <= static_cast<std::int64_t>(room.size()),
                    "denoise: conditions and layout disagree");
    filled_ += num_values;
    return room.first(static_cast<std::size_t>(num_values));
  }
  /// The rows with `target` behind the conditions.
  [[nodiscard]] ConstTensorView with(const Tensor& target) {
    const std::span<const float> values = target.f32();
    MINIACC_REQUIRE(
        filled_ + static_cast<std::int64_t>(values.size()) == rows_.shape().num_elements(),
        "denoise: conditions and layout disagree");
    std::copy(values.begin(), values.end(), rows_.f32().begin() + filled_);
    return rows_.view();
  }

 private:
  Tensor rows_;
  std::int64_t filled_ = 0;
};

std::filesystem::path first_given(const std::filesystem::path& given,
                                  const std::filesystem::path& found) {
  return given.empty() ? found : given;
}

/// Every timestep that a row of the sequence has at some step.
std::vector<float> schedule_times(const SigmaSchedule& schedule, const PackedSequence& sequence) {
  std::vector<float> times;
  for (std::size_t i = 0; i < schedule.num_forwards(); ++i) {
    const std::vector<float> step =
        sequence.distinct_times(1.0F - schedule.video[i], 1.0F - schedule.audio[i]);
    times.insert(times.end(), step.begin(), step.end());
  }
  return times;
}

}  // namespace

Result<ResolvedPaths> resolve_paths(const ModelPaths& model, Task task) {
  ModelFiles found;
  if (!model.folder.empty()) {
    MINIACC_ASSIGN(found, find_components(model.folder, half_of_task(task)));
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

Status check_half(const std::filesystem::path& transformer, const std::string& given_half,
                  Task task, std::vector<std::string>& warnings) {
  const ModelHalf wanted = half_of_task(task);
  HalfEvidence evidence;
  if (given_half.empty()) {
    evidence = detect_half(transformer);
  } else {
    evidence = {parse_half(given_half), "--model-half says so"};
  }
  const char* need = task == Task::kRef2va  ? "references need"
                     : task == Task::kFl2va ? "keyframes need"
                                            : "a clip from text alone needs";
  if (!evidence.half) {
    warnings.push_back(
        fmt::format("nothing tells whether {} is the FL2VA or the Ref2VA half of MiniMax-H3, and "
                    "the files look "
                    "the same; {} {}: name it with --model-half {}",
                    transformer.string(), need, half_name(wanted),
                    wanted == ModelHalf::kFl2va ? "fl2va" : "ref2va"));
    return {};
  }
  if (*evidence.half == wanted) {
    return {};
  }
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format(
          "{} is the {} half of MiniMax-H3 ({}), and {} the {} half: give its files with -m "
          "or --diffusion-model{}",
          transformer.string(), half_name(*evidence.half), evidence.reason, need, half_name(wanted),
          given_half.empty() ? fmt::format(", or --model-half {} if the name is wrong",
                                           wanted == ModelHalf::kFl2va ? "fl2va" : "ref2va")
                             : ""));
}

Result<std::string> Pipeline::attention_form(Precision attention, DeviceId device) const {
  const std::int64_t head_dim = dit_config_.head_dim;
  MINIACC_RETURN_IF_ERROR(check_heads(head_dim, attention, device.kind));
  // The refiner's, whose heads are of the same size.
  MINIACC_RETURN_IF_ERROR(check_heads(head_dim, default_attention(precision_), device.kind));
  return std::string(ops::attention_form(device, attention, head_dim));
}

Status Pipeline::read_configs() {
  MINIACC_ASSIGN(text_config_, read_text_encoder_config(*text_encoder_));
  MINIACC_ASSIGN(dit_config_, read_dit_config(*transformer_));
  MINIACC_ASSIGN(video_config_, video_vae::read_config(*video_vae_));
  MINIACC_ASSIGN(audio_config_, audio_vae::read_config(*audio_vae_));
  return check_parts_fit();
}

WeightSource& Pipeline::transformer() const {
  return adapted_ ? static_cast<WeightSource&>(*adapted_) : *transformer_;
}

Status Pipeline::add_loras(const LoraSetup& setup) {
  MINIACC_REQUIRE(!adapted_, "add_loras: called twice");
  if (setup.loras.empty()) {
    return {};
  }
  MINIACC_ASSIGN(AdaptedTransformer adapted, adapt_transformer(*transformer_, setup, precision_));
  adapted_ = std::move(adapted.weights);
  lora_reports_ = std::move(adapted.reports);
  warnings_.insert(warnings_.end(), adapted.warnings.begin(), adapted.warnings.end());
  return {};
}

Status Pipeline::check_schedule(const SigmaSchedule& schedule) const {
  if (const Lora* lora = find_head_banks(adapted_.get())) {
    MINIACC_ASSIGN(const auto ranges, head_ranges(schedule, lora->head_banks()->num_steps()));
    (void)ranges;
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
  Presentation presentation;
  presentation.ids = ids;
  return encode_text(ctx, presentation, {}, progress);
}

Result<ClipLatents> Pipeline::denoise(OpContext& ctx, const PreparedRequest& prepared,
                                      ConstTensorView text_hidden, JobProgress& progress,
                                      std::vector<double>& step_seconds,
                                      std::span<const Modality> text_tags,
                                      const ConditionLatents& conditions) {
  const ClipGeometry& geometry = prepared.geometry;
  const SigmaSchedule& schedule = prepared.schedule;
  const auto num_steps = static_cast<std::int64_t>(schedule.num_forwards());
  progress.begin(kDenoiseStage, num_steps);
  std::vector<Modality> tags(text_tags.begin(), text_tags.end());
  if (tags.empty()) {
    tags.assign(static_cast<std::size_t>(text_hidden.dim(0)), Modality::kText);
  }
  MINIACC_REQUIRE(static_cast<std::int64_t>(tags.size()) == text_hidden.dim(0),
                  "denoise: a tag for every row of text");
  const PackedSequence sequence = pack_request(prepared.task, prepared.conditions, tags, geometry);
  const std::vector<float> times = schedule_times(schedule, sequence);
  MINIACC_ASSIGN(
      auto* layers,
      stage_layers(
          ctx, StreamedStack::kTransformer, dit_block_stack(dit_config_, precision_),
          plan_denoising(*transformer_, dit_config_, stage_options(prepared, ctx.device.id().kind),
                         {.num_rows = sequence.num_rows(),
                          .num_text_rows = sequence.text().count,
                          .num_times = static_cast<std::int64_t>(times.size()),
                          .num_forwards = num_steps})));
  DeviceWeights weights(transformer(), *device_, kept_tensors_[1].get());
  MINIACC_ASSIGN(Dit dit, Dit::open(weights, ctx.device, precision_, cache_budget_bytes_, layers,
                                    prepared.attention));
  MINIACC_ASSIGN(const Tensor text, dit.refine_text(ctx, text_hidden));

  MINIACC_ASSIGN(std::vector<DitHeads> heads, fuse_heads(adapted_.get(), schedule, *device_));
  for (DitHeads& pair : heads) {
    for (BiasedLinear* layer : {&pair.video_out, &pair.audio_out}) {
      layer->weight.values = to_device(ctx, std::move(layer->weight.values));
      layer->bias = to_device(ctx, std::move(layer->bias));
    }
  }
  ModulationCache modulation;
  MINIACC_RETURN_IF_ERROR(prepare_modulation(ctx, dit, times, modulation, progress));

  std::vector<LatentSize> condition_sizes;
  for (const Condition& condition : prepared.conditions) {
    if (condition.is_visual()) {
      condition_sizes.push_back(condition.latents());
    }
  }
  const Noise noise =
      draw_noise(*device_, prepared.noise, prepared.request.seed,
                 {video_config_.latent_channels, geometry.latent_frames, geometry.latent_height,
                  geometry.latent_width, audio_config_.latent_channels, geometry.audio_latents},
                 condition_sizes);
  StreamRows video_rows(*device_, sequence.num_video_rows(), dit_config_.video_row_width);
  StreamRows audio_rows(*device_, sequence.num_audio_rows(), dit_config_.audio_row_width);
  MINIACC_REQUIRE(conditions.visual.size() == noise.conditions.size(),
                  "denoise: latents for every visual condition");
  for (std::size_t i = 0; i < conditions.visual.size(); ++i) {
    const Tensor clean = patchify(*device_, conditions.visual[i].view());
    const std::span<float> rows = video_rows.append(clean.shape().num_elements());
    std::copy(clean.f32().begin(), clean.f32().end(), rows.begin());
    add_condition_noise(rows, noise.conditions[i].f32());
  }
  for (const Tensor& latents : conditions.audio) {
    audio_latents_to_rows(latents, audio_rows.append(latents.shape().num_elements()).data());
  }
  const Shape video_shape = noise.video.shape();
  LatentRows rows{patchify(*device_, noise.video.view()),
                  empty_tensor(*device_, noise.audio.shape())};
  std::copy(noise.audio.f32().begin(), noise.audio.f32().end(), rows.audio.f32().begin());

  const auto model = [&](const LatentRows& latents, float t_video, float t_audio,
                         std::int64_t step) -> Result<LatentRows> {
    ctx.check_cancelled();
    const auto begin = std::chrono::steady_clock::now();
    const DitInput input{.video_rows = video_rows.with(latents.video),
                         .audio_rows = audio_rows.with(latents.audio),
                         .refined_text = text.view(),
                         .video_time = t_video,
                         .audio_time = t_audio,
                         .sequence = sequence,
                         .heads = heads.empty() ? nullptr : &heads[static_cast<std::size_t>(step)]};
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
  ClipGeometry clip;
  clip.audio_latents = latents.audio.shape()[2];
  MINIACC_RETURN_IF_ERROR(reserve(
      ctx,
      plan_audio_decoding(*audio_vae_, audio_config_, {precision_, cache_budget_bytes_}, clip)));
  DeviceWeights weights(*audio_vae_, *device_, kept_tensors_[3].get());
  MINIACC_ASSIGN(audio_vae::AudioVaeDecoder decoder,
                 audio_vae::AudioVaeDecoder::open(weights, ctx.device, cache_budget_bytes_));
  auto waveform = decoder.decode(ctx, latents.audio.view(),
                                 [&](double fraction) { progress.update(0, fraction); });
  progress.end();
  return waveform;
}

Status Pipeline::decode_video(OpContext& ctx, const ClipLatents& latents,
                              const video_vae::FrameSink& sink, JobProgress& progress) {
  const Shape& shape = latents.video.shape();
  ClipGeometry clip;
  clip.latent_frames = shape[1];
  clip.latent_height = shape[2];
  clip.latent_width = shape[3];
  clip.height = shape[2] * video_config_.spatial_patch;
  clip.width = shape[3] * video_config_.spatial_patch;
  const DeviceKind kind = ctx.device.id().kind;
  const Precision precision = vae_precision(kind);
  MINIACC_ASSIGN(
      auto* blocks,
      stage_layers(ctx, StreamedStack::kVideoVae, video_vae::block_stack(video_config_, precision),
                   plan_video_decoding(*video_vae_, video_config_,
                                       {precision, cache_budget_bytes_, kind}, clip)));
  DeviceWeights weights(*video_vae_, *device_, kept_tensors_[2].get());
  MINIACC_ASSIGN(video_vae::VideoVaeDecoder decoder,
                 video_vae::VideoVaeDecoder::open(weights, ctx.device, precision,
                                                  cache_budget_bytes_, blocks));
  video_vae::DecodeOptions options = video_vae::decode_options_for(kind);
  const std::unique_ptr<Device> pinned = kind == DeviceKind::kCuda ? make_pinned_host() : nullptr;
  Tensor buffers[2];
  for (Tensor& buffer : buffers) {
    buffer = empty_tensor(pinned ? *pinned : *device_, decoder.rgb_shape(shape[2], shape[3]),
                          DType::kU8);
  }
  options.rgb_buffers = buffers;
  FrameQueue queue(sink);
  bool begun = false;
  options.progress = [&](const video_vae::Progress& state) {
    if (!begun) {
      progress.begin(kVideoStage, state.num_windows);
      begun = true;
    }
    progress.update(state.window, state.fraction);
  };
  MINIACC_ASSIGN(
      const video_vae::ClipShape decoded,
      decoder.decode(
          ctx, latents.video.view(),
          [&](const video_vae::FrameBatch& batch) { return queue.push(batch); }, options));
  static_cast<void>(decoded);
  MINIACC_RETURN_IF_ERROR(queue.finish());
  frame_wait_seconds_ = queue.waited_seconds();
  progress.end();
  return {};
}

}  // namespace miniacc
