#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "miniacc/miniacc.h"
#include "model/dit/packed_sequence.h"
#include "runtime/geometry.h"

namespace miniacc {

/// What a request asks of the model. T2VA and FL2VA run on one half of the weights, Ref2VA on the
/// other.
enum class Task { kT2va, kFl2va, kRef2va };
/// "t2va", "fl2va", "ref2va".
[[nodiscard]] std::string_view task_name(Task task);

/// Sizes that conditions are put to; the defaults are the released model's (spec model.md §4.5,
/// §5.1).
struct ConditionRules {
  CanvasRule canvas;                         ///< of reference videos, and of the clip by default
  std::int64_t reference_short_edge = 2048;  ///< of reference images
};

enum class ConditionRole { kFirstFrame, kLastFrame, kImage, kVideo, kAudio };

/// What a file holds: from its header, or exactly once it was read.
struct SourceInfo {
  std::int64_t width = 0;  ///< pixels as shown; 0 for sound
  std::int64_t height = 0;
  std::int64_t num_frames = 0;   ///< 1 for a picture; of a video at 24 a second
  std::int64_t num_samples = 0;  ///< of a channel at 32 kHz; 0 without sound
  std::string stamp = {};        ///< file_stamp() when it was looked at; empty: unknown
};

/// One file that the clip is conditioned on, and what becomes of it.
struct Condition {
  ConditionRole role = ConditionRole::kImage;
  InputFile file;
  bool with_sound = false;  ///< the soundtrack of a video is used
  std::string name;         ///< how messages call it: "reference 2 (video dance.mp4)"
  SourceInfo source;

  std::int64_t width = 0;  ///< pixels that both encoders see, multiples of 32; 0 for sound
  std::int64_t height = 0;
  std::int64_t num_frames = 0;   ///< 1 for a picture; of a video at most the clip's frames
  std::int64_t num_samples = 0;  ///< of a channel that the audio VAE sees

  [[nodiscard]] bool is_keyframe() const {
    return role == ConditionRole::kFirstFrame || role == ConditionRole::kLastFrame;
  }
  [[nodiscard]] bool is_visual() const { return role != ConditionRole::kAudio; }
  [[nodiscard]] bool has_sound() const { return num_samples > 0; }
  /// Frames that the video VAE sees: cut down to 17·n + 5, but not below 22.
  [[nodiscard]] std::int64_t num_encoded_frames() const;
  /// Latents of those frames.
  [[nodiscard]] LatentSize latents() const;
  /// ceil(num_samples / 800): the end is padded, the first sample stays the first.
  [[nodiscard]] std::int64_t num_audio_latents() const;
};

/// kInvalidArgument names a combination that no layout exists for (more than 9 images, 3 videos, 3
/// sounds or 12 references; sound alone; keyframes together with references) or an option out of
/// range. Looks at no file.
[[nodiscard]] Result<Task> check_inputs(const GenerateRequest& request);

/// The files of a request in packed order, without sizes.
[[nodiscard]] std::vector<Condition> list_conditions(const GenerateRequest& request);

/// Size of the clip: the request's, the trained size for the aspect ratio of `first_keyframe` where
/// the request has none, 1344×768 without keyframes. kInvalidArgument for half a size with a
/// keyframe, and for aspect ratios outside 1:4 … 4:1.
[[nodiscard]] Result<Canvas> clip_size(const GenerateRequest& request,
                                       const std::optional<SourceInfo>& first_keyframe,
                                       const ConditionRules& rules);

/// Fills in what becomes of a condition's source. What is adjusted or left out is a sentence in
/// `notes`. kInvalidInput for a source that cannot be used. Source: spec model.md §4.5.
[[nodiscard]] Status fit_condition(Condition& condition, const SourceInfo& source,
                                   const GenerateRequest& request, const ClipGeometry& clip,
                                   const ConditionRules& rules, std::vector<std::string>& notes);

/// The rows of a request. `text_tags` has a tag for every token of the presentation.
[[nodiscard]] PackedSequence pack_request(Task task, const std::vector<Condition>& conditions,
                                          std::span<const Modality> text_tags,
                                          const ClipGeometry& clip);

}  // namespace miniacc
