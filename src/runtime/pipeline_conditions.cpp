// What a clip is conditioned on, from decoded media to latents and vision features.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "io/tokenizer_text.h"
#include "kernels/copy.h"
#include "model/audio_vae/audio_encoder_config.h"
#include "model/audio_vae/audio_vae_encoder.h"
#include "model/text_encoder/encode_text.h"
#include "model/video_vae/video_encoder_config.h"
#include "model/video_vae/video_vae_encoder.h"
#include "model/vision/vision_config.h"
#include "runtime/device_weights.h"
#include "runtime/pipeline.h"
#include "runtime/vision_frames.h"

namespace miniacc {
namespace {

/// Positions of the text encoder (Qwen3-VL's max_position_embeddings).
constexpr std::int64_t kMaxTextTokens = 262144;
/// Rows of a packed sequence. Every index inside is 64-bit; the bound is where a request is a
/// mistake: the longest clip with twelve of the largest references stays below 800,000.
constexpr std::int64_t kMaxPackedRows = std::int64_t{1} << 20;
/// Normalised latents have a spread of one; a hundred times that is no picture and no sound.
constexpr double kMaxLatentRms = 100.0;

PresentedInput presented(const Condition& condition) {
  using Kind = PresentedInput::Kind;
  return {.kind = condition.role == ConditionRole::kAudio   ? Kind::kAudio
                  : condition.role == ConditionRole::kVideo ? Kind::kVideo
                                                            : Kind::kImage,
          .width = condition.width,
          .height = condition.height,
          .num_frames = condition.num_frames,
          .has_sound = condition.has_sound(),
          .name = condition.name};
}

/// The frames that the video VAE sees.
RgbClip encoded_frames(const Condition& condition, const RgbClip& frames) {
  RgbClip clip{frames.width, frames.height, condition.num_encoded_frames(), {}};
  const auto bytes = static_cast<std::ptrdiff_t>(3 * clip.width * clip.height * clip.num_frames);
  clip.pixels.assign(frames.pixels.begin(), frames.pixels.begin() + bytes);
  return clip;
}

Status check_spread(const Condition& condition, const Tensor& latents) {
  double sum = 0.0;
  for (const float value : latents.f32()) {
    sum += static_cast<double>(value) * static_cast<double>(value);
  }
  const double rms = std::sqrt(sum / static_cast<double>(latents.f32().size()));
  if (std::isfinite(rms) && rms <= kMaxLatentRms) {
    return {};
  }
  return fail(ErrorCode::kInternal,
              fmt::format("{}: its latents have a root mean square of {}, expected about 1: the "
                          "encoder's weights are not those of the latents' statistics",
                          condition.name, rms));
}

bool any_visual(const std::vector<Condition>& conditions) {
  return std::any_of(conditions.begin(), conditions.end(),
                     [](const Condition& condition) { return condition.is_visual(); });
}

bool any_sound(const std::vector<Condition>& conditions) {
  return std::any_of(conditions.begin(), conditions.end(),
                     [](const Condition& condition) { return condition.has_sound(); });
}

}  // namespace

Status Pipeline::check_conditions(const PreparedRequest& prepared) const {
  if (any_visual(prepared.conditions)) {
    if (!has_vision_tower(*text_encoder_)) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{} has no vision tower, which pictures and videos need: use a text "
                              "encoder file with the tensors visual.*",
                              text_encoder_->info().path.string()));
    }
    MINIACC_ASSIGN(const VisionConfig vision, read_vision_config(*text_encoder_));
    if (vision.out_size != text_config_.hidden_size) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: the vision tower gives {} features and the language layers have "
                              "{}",
                              text_encoder_->info().path.string(), vision.out_size,
                              text_config_.hidden_size));
    }
    if (!video_vae::has_encoder(*video_vae_)) {
      return fail(
          ErrorCode::kUnsupported,
          fmt::format("{} holds only the decoder of the video VAE; pictures and videos need "
                      "the encoder too",
                      video_vae_->info().path.string()));
    }
    MINIACC_ASSIGN(const auto encoder, video_vae::read_encoder_config(*video_vae_, video_config_));
    (void)encoder;
  }
  if (any_sound(prepared.conditions)) {
    if (!audio_vae::has_encoder(*audio_vae_)) {
      return fail(
          ErrorCode::kUnsupported,
          fmt::format("{} holds only the decoder of the audio VAE; reference sounds need the "
                      "encoder too",
                      audio_vae_->info().path.string()));
    }
    MINIACC_ASSIGN(const auto encoder, audio_vae::read_encoder_config(*audio_vae_, audio_config_));
    (void)encoder;
  }
  return {};
}

Result<Presentation> Pipeline::present(const PreparedRequest& prepared) const {
  MINIACC_RETURN_IF_ERROR(check_prompt_length(prepared.request.prompt));
  std::vector<PresentedInput> inputs;
  for (const Condition& condition : prepared.conditions) {
    inputs.push_back(presented(condition));
  }
  MINIACC_ASSIGN(Presentation presentation,
                 make_presentation(tokenizer_, prepared.request.prompt, inputs));
  const auto tokens = static_cast<std::int64_t>(presentation.ids.size());
  if (tokens > kMaxTextTokens) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("prompt and references make {} tokens, the text encoder has positions "
                            "for {}: use fewer references, or --ref-image-size match",
                            tokens, kMaxTextTokens));
  }
  const std::int64_t rows =
      pack_request(prepared.task, prepared.conditions, presentation.tags, prepared.geometry)
          .num_rows();
  if (rows > kMaxPackedRows) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("clip, text and references make {} packed rows, more than the {} that "
                            "are accepted: shorten the clip, or use fewer references",
                            rows, kMaxPackedRows));
  }
  return presentation;
}

Result<ConditionLatents> Pipeline::encode_conditions(OpContext& ctx,
                                                     const PreparedRequest& prepared,
                                                     std::span<const ConditionMedia> media,
                                                     JobProgress& progress) {
  const std::vector<Condition>& conditions = prepared.conditions;
  MINIACC_REQUIRE(media.size() == conditions.size(), "encode_conditions: media of every condition");
  const auto count = static_cast<std::int64_t>(conditions.size());
  progress.begin(kConditionStage, count);
  MINIACC_RETURN_IF_ERROR(reserve(ctx, condition_plan(prepared)));
  ConditionLatents latents;
  std::int64_t done = 0;
  // One encoder at a time is in memory, so the two kinds are encoded one after the other.
  if (any_visual(conditions)) {
    DeviceWeights weights(*video_vae_, *device_);
    MINIACC_ASSIGN(auto encoder,
                   video_vae::VideoVaeEncoder::open(weights, ctx.device, video_config_));
    for (std::size_t i = 0; i < conditions.size(); ++i) {
      const Condition& condition = conditions[i];
      if (!condition.is_visual()) {
        continue;
      }
      video_vae::EncodeOptions options;
      options.progress = [&](double fraction) {
        progress.update(done, (static_cast<double>(done) + fraction) / static_cast<double>(count));
      };
      MINIACC_ASSIGN(Tensor encoded,
                     encoder.encode(ctx, encoded_frames(condition, media[i].frames), options));
      const LatentSize size = condition.latents();
      MINIACC_REQUIRE(encoded.shape() == Shape({video_config_.latent_channels, size.num_frames,
                                                size.height, size.width}),
                      "encode_conditions: the encoder and the layout disagree");
      MINIACC_RETURN_IF_ERROR(check_spread(condition, encoded));
      latents.visual.push_back(std::move(encoded));
      done += condition.has_sound() ? 0 : 1;
    }
  }
  if (any_sound(conditions)) {
    DeviceWeights weights(*audio_vae_, *device_);
    MINIACC_ASSIGN(auto encoder,
                   audio_vae::AudioVaeEncoder::open(weights, ctx.device, audio_config_));
    for (std::size_t i = 0; i < conditions.size(); ++i) {
      const Condition& condition = conditions[i];
      if (!condition.has_sound()) {
        continue;
      }
      audio_vae::EncodeOptions options;
      options.progress = [&](double fraction) {
        progress.update(done, (static_cast<double>(done) + fraction) / static_cast<double>(count));
      };
      MINIACC_ASSIGN(Tensor encoded, encoder.encode(ctx, *media[i].sound, options));
      MINIACC_REQUIRE(encoded.shape() ==
                          Shape({2, audio_config_.latent_channels, condition.num_audio_latents()}),
                      "encode_conditions: the audio encoder and the layout disagree");
      MINIACC_RETURN_IF_ERROR(check_spread(condition, encoded));
      latents.audio.push_back(std::move(encoded));
      ++done;
    }
  }
  progress.end();
  return latents;
}

Result<std::vector<VisionFeatures>> Pipeline::run_vision(OpContext& ctx,
                                                         const Presentation& presentation,
                                                         std::span<const ConditionMedia> media,
                                                         JobProgress& progress) {
  if (presentation.blocks.empty()) {
    return std::vector<VisionFeatures>();
  }
  MINIACC_ASSIGN(const VisionConfig config, read_vision_config(*text_encoder_));
  progress.begin(kVisionStage, config.num_blocks);
  std::vector<VisionFrames> frames;
  for (std::size_t i = 0; i < media.size(); ++i) {
    const RgbClip& clip = media[i].frames;
    if (clip.num_frames == 1) {
      MINIACC_ASSIGN(frames.emplace_back(),
                     prepare_vision_frames(RgbImage{clip.width, clip.height, clip.pixels}));
    } else if (clip.num_frames > 1) {
      MINIACC_ASSIGN(std::vector<VisionFrames> blocks, prepare_vision_frames(clip));
      std::move(blocks.begin(), blocks.end(), std::back_inserter(frames));
    }
  }
  MINIACC_REQUIRE(frames.size() == presentation.blocks.size(),
                  "run_vision: pictures of every vision block");
  std::vector<VisionGrid> grids;
  for (const VisualBlock& block : presentation.blocks) {
    grids.push_back(block.grid);
  }
  MINIACC_RETURN_IF_ERROR(
      reserve(ctx, plan_vision(*text_encoder_, config, {precision_, cache_budget_bytes_}, grids)));
  std::vector<VisionInput> inputs;
  inputs.reserve(frames.size());
  for (const VisionFrames& block : frames) {
    inputs.push_back({block});
  }
  DeviceWeights weights(*text_encoder_, *device_);
  MINIACC_ASSIGN(
      std::vector<VisionFeatures> features,
      run_vision_tower(
          ctx, weights, config, inputs, precision_, [&](std::int64_t finished, std::int64_t total) {
            progress.update(finished, static_cast<double>(finished) / static_cast<double>(total));
          }));
  for (VisionFeatures& block : features) {
    block.merged = to_host(ctx, std::move(block.merged));
    for (Tensor& layer : block.deepstack) {
      layer = to_host(ctx, std::move(layer));
    }
  }
  progress.end();
  return features;
}

Result<Tensor> Pipeline::encode_text(OpContext& ctx, const Presentation& presentation,
                                     std::span<const VisionFeatures> features,
                                     JobProgress& progress) {
  progress.begin(kTextStage, text_config_.num_used_layers);
  const std::vector<VisualSpan> visuals = visual_spans(presentation, features);
  std::int64_t num_vision_tokens = 0;
  std::int64_t num_deepstack = 0;
  for (const VisualSpan& visual : visuals) {
    num_vision_tokens += visual.grid.num_tokens();
    num_deepstack = static_cast<std::int64_t>(visual.features->deepstack.size());
  }
  MINIACC_ASSIGN(
      auto* layers,
      stage_layers(
          ctx, StreamedStack::kTextEncoder, text_layer_stack(text_config_, precision_),
          plan_text_encoding(*text_encoder_, text_config_, {precision_, cache_budget_bytes_},
                             static_cast<std::int64_t>(presentation.ids.size()), num_vision_tokens,
                             num_deepstack)));
  DeviceWeights weights(*text_encoder_, *device_, kept_tensors_[0].get());
  const auto on_layer = [&](std::int64_t finished, std::int64_t total) {
    progress.update(finished, static_cast<double>(finished) / static_cast<double>(total));
  };
  MINIACC_ASSIGN(Tensor hidden, miniacc::encode_text(ctx, weights, text_config_, presentation.ids,
                                                     visuals, precision_, on_layer, layers));
  progress.end();
  return to_host(ctx, std::move(hidden));
}

}  // namespace miniacc
