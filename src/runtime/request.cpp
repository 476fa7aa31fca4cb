#include "runtime/request.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "adapters/lora.h"
#include "checkpoint/model_half.h"
#include "kernels/attention.h"

namespace miniacc {
namespace {

constexpr const char* kBaseRecipe = "base";

ScheduleOptions schedule_options(const SamplingOptions& sampling) {
  return {.recipe = sampling.recipe,
          .steps = sampling.steps,
          .video_shift = sampling.video_shift,
          .audio_shift = sampling.audio_shift,
          .video_sigmas = sampling.video_sigmas,
          .audio_sigmas = sampling.audio_sigmas};
}

Status check_loras(const std::vector<LoraRequest>& loras) {
  for (const LoraRequest& lora : loras) {
    MINIACC_RETURN_IF_ERROR(check_lora_request(lora));
  }
  return {};
}

/// Sizes of the clip and of everything it is conditioned on.
Status prepare_conditions(const PrepareOptions& options, PreparedRequest& prepared) {
  const GenerateRequest& request = prepared.request;
  MINIACC_ASSIGN(prepared.task, check_inputs(request));
  std::vector<Condition> conditions;
  if (request.resume_latents.empty()) {  // latents hold what came of the conditions
    conditions = list_conditions(request);
  }
  std::vector<SourceInfo> sources;
  for (Condition& condition : conditions) {
    MINIACC_ASSIGN(sources.emplace_back(), options.probe(condition));
  }
  std::optional<SourceInfo> keyframe;
  if (!conditions.empty() && conditions.front().is_keyframe()) {
    keyframe = sources.front();
  }
  MINIACC_ASSIGN(const Canvas size, clip_size(request, keyframe, prepared.rules));
  MINIACC_ASSIGN(prepared.geometry,
                 fit_geometry(size.width, size.height, request.num_frames, prepared.notes));
  for (std::size_t i = 0; i < conditions.size(); ++i) {
    MINIACC_RETURN_IF_ERROR(fit_condition(conditions[i], sources[i], request, prepared.geometry,
                                          prepared.rules, prepared.notes));
  }
  prepared.conditions = std::move(conditions);
  return {};
}

Result<std::optional<Precision>> parse_attention(const std::string& name) {
  if (name.empty()) {
    return std::nullopt;
  }
  const auto parsed = parse_precision(name);
  if (!parsed) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--attention must be f32, bf16 or int8, got '{}'", name));
  }
  return *parsed;
}

}  // namespace

Result<Precision> parse_precision(const std::string& name) {
  if (name == "f32") {
    return Precision::kF32;
  }
  if (name == "bf16") {
    return Precision::kBF16;
  }
  if (name == "int8") {
    return Precision::kInt8;
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--precision must be f32, bf16 or int8, got '{}'", name));
}

const char* precision_name(Precision precision) {
  switch (precision) {
    case Precision::kBF16:
      return "bf16";
    case Precision::kInt8:
      return "int8";
    default:
      return "f32";
  }
}

Status check_heads(std::int64_t head_dim, Precision attention, DeviceKind device) {
  const std::int64_t widest = ops::max_head_dim(device, attention);
  if (head_dim <= widest) {
    return {};
  }
  const bool on_cpu = device == DeviceKind::kCpu;
  return fail(ErrorCode::kUnsupported,
              fmt::format("the transformer's attention heads have {} channels, and {} attention on "
                          "{} takes at most {}; use {}",
                          head_dim, precision_name(attention), on_cpu ? "the CPU" : "CUDA", widest,
                          on_cpu ? "--attention bf16" : "--device cpu"));
}

Result<std::optional<Precision>> parse_vae_precision(const std::string& name) {
  if (name == "auto") {
    return std::optional<Precision>();
  }
  const auto precision = parse_precision(name);
  if (!precision) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("the video decoder's precision must be auto, f32, bf16 or int8, got '{}'",
                    name));
  }
  return std::optional<Precision>(*precision);
}

Result<PreparedRequest> prepare_request(const GenerateRequest& request,
                                        const PrepareOptions& options) {
  PreparedRequest prepared;
  prepared.request = request;
  prepared.rules = options.rules;
  MINIACC_RETURN_IF_ERROR(prepare_conditions(options, prepared));
  if (!request.model.half.empty() && !parse_half(request.model.half)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--model-half must be fl2va or ref2va, got '{}'", request.model.half));
  }
  MINIACC_ASSIGN(prepared.attention, parse_attention(request.attention));
  const auto noise = parse_noise_order(request.sampling.noise);
  if (!noise) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--noise must be sglang, diffusers or comfy, got '{}'",
                            request.sampling.noise));
  }
  prepared.noise = *noise;
  GenerateRequest& effective = prepared.request;
  if (effective.sampling.recipe.empty()) {
    effective.sampling.recipe = kBaseRecipe;
  }
  MINIACC_ASSIGN(prepared.schedule, make_schedule(schedule_options(effective.sampling)));
  MINIACC_RETURN_IF_ERROR(check_loras(request.loras));
  if (options.needs_output && request.output.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "name an output file with -o (--output), e.g. -o clip.mp4");
  }
  effective.width = prepared.geometry.width;
  effective.height = prepared.geometry.height;
  effective.num_frames = prepared.geometry.num_frames;
  effective.sampling.video_sigmas = prepared.schedule.video;
  effective.sampling.audio_sigmas = prepared.schedule.audio;
  return prepared;
}

}  // namespace miniacc
