#include "runtime/conditions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace miniacc {
namespace {

// Limits of the released model (spec model.md §4.5).
constexpr std::size_t kMaxImages = 9;
constexpr std::size_t kMaxVideos = 3;
constexpr std::size_t kMaxSounds = 3;
constexpr std::size_t kMaxReferences = 12;
constexpr std::int64_t kMinVideoFrames = 13;  // two samples at 2 a second make one vision block
constexpr std::int64_t kFramesPerChunk = 17;
constexpr std::int64_t kChunkHead = 5;
constexpr std::int64_t kSamplesPerLatent = 800;
constexpr double kMaxAspect = 4.0;
constexpr Canvas kDefaultSize = {1344, 768};

const char* kind_name(ReferenceInput::Kind kind) {
  switch (kind) {
    case ReferenceInput::Kind::kImage:
      return "image";
    case ReferenceInput::Kind::kVideo:
      return "video";
    case ReferenceInput::Kind::kAudio:
      break;
  }
  return "sound";
}

Status check_count(std::size_t count, std::size_t limit, const char* what, const char* option) {
  if (count <= limit) {
    return {};
  }
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("{} {} were given ({}); the model takes at most {}", count, what, option, limit));
}

Status check_references(const std::vector<ReferenceInput>& references) {
  using Kind = ReferenceInput::Kind;
  const auto count = [&](Kind kind) {
    return static_cast<std::size_t>(
        std::count_if(references.begin(), references.end(),
                      [&](const ReferenceInput& reference) { return reference.kind == kind; }));
  };
  for (const ReferenceInput& reference : references) {
    if (reference.file.empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("a reference {} names no file", kind_name(reference.kind)));
    }
    if (reference.with_sound && reference.kind != Kind::kVideo) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("{}: only a video can be taken with its sound, this is a reference {}",
                      reference.file.path.string(), kind_name(reference.kind)));
    }
  }
  MINIACC_RETURN_IF_ERROR(
      check_count(count(Kind::kImage), kMaxImages, "reference images", "--ref-image"));
  MINIACC_RETURN_IF_ERROR(check_count(count(Kind::kVideo), kMaxVideos, "reference videos",
                                      "--ref-video, --ref-video-audio"));
  MINIACC_RETURN_IF_ERROR(
      check_count(count(Kind::kAudio), kMaxSounds, "reference sounds", "--ref-audio"));
  MINIACC_RETURN_IF_ERROR(
      check_count(references.size(), kMaxReferences, "references", "of all kinds"));
  if (!references.empty() && count(Kind::kAudio) == references.size()) {
    return fail(ErrorCode::kInvalidArgument,
                "a reference sound (--ref-audio) cannot be used alone: add at least one reference "
                "image or video");
  }
  return {};
}

/// Python's round(value / 32) · 32, at least 32.
std::int64_t round_side(double value) {
  const auto units = static_cast<std::int64_t>(std::nearbyint(value / 32.0));
  return std::max<std::int64_t>(1, units) * 32;
}

Canvas image_size(const SourceInfo& source, const std::string& mode, const ClipGeometry& clip,
                  const ConditionRules& rules) {
  const auto width = static_cast<double>(source.width);
  const auto height = static_cast<double>(source.height);
  double scale = static_cast<double>(rules.reference_short_edge) / std::min(width, height);
  if (mode == "max") {
    scale = std::min(1.0, scale);
  } else if (mode == "match") {
    scale =
        std::min(1.0, std::sqrt(static_cast<double>(clip.width * clip.height) / (width * height)));
  }
  return {round_side(width * scale), round_side(height * scale)};
}

Status check_aspect(const Condition& condition, const SourceInfo& source) {
  const double aspect = static_cast<double>(source.width) / static_cast<double>(source.height);
  if (aspect <= kMaxAspect && aspect >= 1.0 / kMaxAspect) {
    return {};
  }
  return fail(ErrorCode::kInvalidInput,
              fmt::format("{} is {}x{}; its aspect ratio must lie between 1:4 and 4:1: crop it",
                          condition.name, source.width, source.height));
}

Status fit_keyframe(Condition& condition, const GenerateRequest& request, const ClipGeometry& clip,
                    std::vector<std::string>& notes) {
  condition.width = clip.width;
  condition.height = clip.height;
  condition.num_frames = 1;
  const SourceInfo& source = condition.source;
  const bool follows = condition.role == ConditionRole::kLastFrame && !request.init_image.empty();
  const bool stretched =
      request.keyframe_fit == "stretch" || (request.keyframe_fit == "reference" && !follows);
  const double change = static_cast<double>(source.width * clip.height) /
                        static_cast<double>(source.height * clip.width);
  // Rounding a size to multiples of 32 changes the ratio by up to 3 % at the trained sizes.
  if (stretched && (change > 1.04 || change < 1.0 / 1.04)) {
    notes.push_back(fmt::format(
        "{} is {}x{} and is stretched to {}x{}, as the reference does; --fit cover crops instead",
        condition.name, source.width, source.height, clip.width, clip.height));
  }
  return {};
}

Status fit_video(Condition& condition, const ClipGeometry& clip, const ConditionRules& rules,
                 std::vector<std::string>& notes) {
  const SourceInfo& source = condition.source;
  MINIACC_RETURN_IF_ERROR(check_aspect(condition, source));
  const auto canvas = canvas_of_aspect(static_cast<double>(source.width),
                                       static_cast<double>(source.height), rules.canvas);
  if (!canvas) {
    return tl::unexpected(canvas.error());
  }
  condition.width = canvas->width;
  condition.height = canvas->height;
  condition.num_frames = std::min(source.num_frames, clip.num_frames);
  if (condition.num_frames < kMinVideoFrames) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{} has {} frames at 24 a second; a reference video needs at least {} "
                            "({:.2f} s){}",
                            condition.name, source.num_frames, kMinVideoFrames,
                            static_cast<double>(kMinVideoFrames) / kFramesPerSecond,
                            source.num_frames >= kMinVideoFrames
                                ? ", and no more are used than the clip has: ask for more frames"
                                : ""));
  }
  if (source.num_frames > clip.num_frames) {
    notes.push_back(fmt::format("{} is cut from {} to the {} frames of the clip", condition.name,
                                source.num_frames, clip.num_frames));
  }
  return {};
}

void fit_sound(Condition& condition, const ClipGeometry& clip, std::vector<std::string>& notes) {
  const std::int64_t limit = clip.num_frames * kSampleRateHz / kFramesPerSecond;
  condition.num_samples = std::min(condition.source.num_samples, limit);
  if (condition.source.num_samples > limit) {
    notes.push_back(fmt::format("the sound of {} is cut from {:.2f} s to the clip's {:.2f} s",
                                condition.name,
                                static_cast<double>(condition.source.num_samples) / kSampleRateHz,
                                static_cast<double>(limit) / kSampleRateHz));
  }
}

}  // namespace

std::string_view task_name(Task task) {
  switch (task) {
    case Task::kT2va:
      return "t2va";
    case Task::kFl2va:
      return "fl2va";
    case Task::kRef2va:
      break;
  }
  return "ref2va";
}

std::int64_t Condition::num_encoded_frames() const {
  if (num_frames <= 1) {
    return num_frames;
  }
  const std::int64_t chunks =
      std::max<std::int64_t>(1, (num_frames - kChunkHead) / kFramesPerChunk);
  return std::min(num_frames, chunks * kFramesPerChunk + kChunkHead);
}

LatentSize Condition::latents() const {
  MINIACC_REQUIRE(is_visual(), "conditions: a sound has no latent frames");
  std::int64_t frames = 1;
  if (num_frames > 1) {
    // Chunks of 17 frames, the last one filled up, give 5 latents each; the last 3 are dropped.
    frames = (num_encoded_frames() + kFramesPerChunk - 1) / kFramesPerChunk * 5 - 3;
  }
  return {frames, height / 16, width / 16};
}

std::int64_t Condition::num_audio_latents() const {
  return (num_samples + kSamplesPerLatent - 1) / kSamplesPerLatent;
}

Result<Task> check_inputs(const GenerateRequest& request) {
  MINIACC_RETURN_IF_ERROR(check_references(request.references));
  const std::string& size = request.ref_image_size;
  if (size != "diffusers" && size != "match" && size != "max") {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--ref-image-size must be match, max or diffusers, got '{}'", size));
  }
  const std::string& fit = request.keyframe_fit;
  if (fit != "reference" && fit != "stretch" && fit != "cover" && fit != "contain") {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--fit must be reference, stretch, cover or contain, got '{}'", fit));
  }
  const bool has_keyframes = !request.init_image.empty() || !request.end_image.empty();
  if (has_keyframes && !request.references.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "keyframes (--init-img, --end-img) and references (--ref-...) cannot be used "
                "together: they belong to the two halves of the model, FL2VA and Ref2VA; give the "
                "picture as --ref-image, or leave the references out");
  }
  return has_keyframes ? Task::kFl2va : request.references.empty() ? Task::kT2va : Task::kRef2va;
}

std::vector<Condition> list_conditions(const GenerateRequest& request) {
  std::vector<Condition> conditions;
  const auto add = [&](ConditionRole role, const InputFile& file, const std::string& what) {
    Condition& condition = conditions.emplace_back();
    condition.role = role;
    condition.file = file;
    condition.name = fmt::format("{} {}", what, file.path.string());
  };
  if (!request.init_image.empty()) {
    add(ConditionRole::kFirstFrame, request.init_image, "first frame");
  }
  if (!request.end_image.empty()) {
    add(ConditionRole::kLastFrame, request.end_image, "last frame");
  }
  for (const ReferenceInput& reference : request.references) {
    const ConditionRole role =
        reference.kind == ReferenceInput::Kind::kImage   ? ConditionRole::kImage
        : reference.kind == ReferenceInput::Kind::kVideo ? ConditionRole::kVideo
                                                         : ConditionRole::kAudio;
    add(role, reference.file, fmt::format("reference {}", kind_name(reference.kind)));
    conditions.back().with_sound = reference.with_sound;
  }
  return conditions;
}

Result<Canvas> clip_size(const GenerateRequest& request,
                         const std::optional<SourceInfo>& first_keyframe,
                         const ConditionRules& rules) {
  if (first_keyframe && (request.width == 0) != (request.height == 0)) {
    return fail(ErrorCode::kInvalidArgument,
                "give both --width and --height, or neither: then the clip takes the aspect ratio "
                "of its first keyframe");
  }
  if (first_keyframe && request.width == 0) {
    auto canvas = canvas_of_aspect(static_cast<double>(first_keyframe->width),
                                   static_cast<double>(first_keyframe->height), rules.canvas);
    if (!canvas) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("the first keyframe is {}x{}; a clip has an aspect ratio between 1:4 "
                              "and 4:1: crop the picture or give --width and --height",
                              first_keyframe->width, first_keyframe->height));
    }
    return canvas;
  }
  return Canvas{request.width == 0 ? kDefaultSize.width : request.width,
                request.height == 0 ? kDefaultSize.height : request.height};
}

Status fit_condition(Condition& condition, const SourceInfo& source, const GenerateRequest& request,
                     const ClipGeometry& clip, const ConditionRules& rules,
                     std::vector<std::string>& notes) {
  condition.source = source;
  switch (condition.role) {
    case ConditionRole::kFirstFrame:
    case ConditionRole::kLastFrame:
      return fit_keyframe(condition, request, clip, notes);
    case ConditionRole::kImage: {
      MINIACC_RETURN_IF_ERROR(check_aspect(condition, source));
      const Canvas size = image_size(source, request.ref_image_size, clip, rules);
      condition.width = size.width;
      condition.height = size.height;
      condition.num_frames = 1;
      return {};
    }
    case ConditionRole::kVideo:
      MINIACC_RETURN_IF_ERROR(fit_video(condition, clip, rules, notes));
      if (!condition.with_sound) {
        if (source.num_samples > 0) {
          notes.push_back(fmt::format("the sound of {} is not used; --ref-video-audio takes it too",
                                      condition.name));
        }
        return {};
      }
      if (source.num_samples == 0) {
        return fail(ErrorCode::kInvalidInput,
                    fmt::format("{} has no sound; give it with --ref-video", condition.name));
      }
      break;
    case ConditionRole::kAudio:
      if (source.num_samples == 0) {
        return fail(ErrorCode::kInvalidInput, fmt::format("{} holds no sound", condition.name));
      }
      break;
  }
  fit_sound(condition, clip, notes);
  return {};
}

PackedSequence pack_request(Task task, const std::vector<Condition>& conditions,
                            std::span<const Modality> text_tags, const ClipGeometry& clip) {
  const LatentSize video = {clip.latent_frames, clip.latent_height, clip.latent_width};
  if (task != Task::kRef2va) {
    Keyframes keyframes;
    for (const Condition& condition : conditions) {
      keyframes.first = keyframes.first || condition.role == ConditionRole::kFirstFrame;
      keyframes.last = keyframes.last || condition.role == ConditionRole::kLastFrame;
    }
    return pack_fl2va(text_tags, keyframes, video, clip.audio_latents);
  }
  std::vector<Reference> references;
  for (const Condition& condition : conditions) {
    Reference& reference = references.emplace_back();
    if (condition.is_visual()) {
      reference.visual = condition.latents();
    }
    reference.num_audio_latents = condition.num_audio_latents();
    reference.is_image = condition.role == ConditionRole::kImage;
  }
  return pack_ref2va(text_tags, references, video, clip.audio_latents);
}

}  // namespace miniacc
