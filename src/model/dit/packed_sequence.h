#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/dit/config.h"

namespace miniacc {

/// Latent frames of one visual stream: num_frames × height × width latent pixels. One patch covers
/// 1×2×2 of them, so height and width are even.
struct LatentSize {
  std::int64_t num_frames = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;

  /// P: rows of one frame.
  [[nodiscard]] std::int64_t rows_per_frame() const { return height / 2 * (width / 2); }
  [[nodiscard]] std::int64_t num_rows() const { return num_frames * rows_per_frame(); }
};

/// Visual conditions carry 0.1 % noise and are told so; audio conditions are clean (spec model.md
/// §4.3, §4.5).
inline constexpr float kVisualConditionTime = 0.999F;
inline constexpr float kAudioConditionTime = 1.0F;

/// What a run of packed rows is. It decides the input projection, the modality tag and the timestep
/// of the rows (spec model.md §4.2, §4.3).
enum class SegmentKind {
  kText,
  kVideoCondition,  ///< keyframe, reference image or reference video
  kAudioCondition,  ///< reference audio or the soundtrack of a reference video
  kTargetAudio,
  kTargetVideo,
};

struct RowRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
  [[nodiscard]] std::int64_t end() const { return first + count; }
};

struct Segment {
  SegmentKind kind = SegmentKind::kText;
  RowRange rows;
};

/// Timestep and AdaLN row of every packed row at one step.
struct RowTimesteps {
  std::vector<float> distinct;               ///< ascending, no two equal
  std::vector<std::int32_t> timestep_index;  ///< [S] index into distinct
  std::vector<std::int32_t> adaln_row;       ///< [S] timestep_index · 3 + tag
};

/// One request's rows in the order the transformer sees them: text, conditions in request order,
/// target audio, target video.
struct PackedSequence {
  std::vector<Segment> segments;     ///< in row order, without gaps
  std::vector<double> position_ids;  ///< [S, 3]: time, height, width
  std::vector<std::int32_t> tags;    ///< [S] Modality of each row

  [[nodiscard]] std::int64_t num_rows() const { return static_cast<std::int64_t>(tags.size()); }
  [[nodiscard]] RowRange text() const { return segments.front().rows; }
  [[nodiscard]] RowRange target_audio() const { return segments[segments.size() - 2].rows; }
  [[nodiscard]] RowRange target_video() const { return segments.back().rows; }
  /// Rows that the video (audio) projection reads: conditions in row order, then the target.
  [[nodiscard]] std::int64_t num_video_rows() const;
  [[nodiscard]] std::int64_t num_audio_rows() const;

  /// t of every row, t = 1 - sigma: `video_time` for text and target video, `audio_time` for target
  /// audio, max(video_time, 0.999) for visual conditions, 1 for audio conditions. Equal values (as
  /// f32) share one entry. Source: spec model.md §3.5, §4.3.
  [[nodiscard]] RowTimesteps timesteps(float video_time, float audio_time) const;
  /// RowTimesteps::distinct of that step.
  [[nodiscard]] std::vector<float> distinct_times(float video_time, float audio_time) const;
};

/// Keyframes of a request, both of the target's latent height and width.
struct Keyframes {
  bool first = false;
  bool last = false;
};

/// One reference of a request, in request order.
struct Reference {
  /// An image (one frame) or a video; empty for audio alone.
  std::optional<LatentSize> visual = std::nullopt;
  /// Sound latents per channel: of an audio reference, or of the video's soundtrack; 0 for none.
  std::int64_t num_audio_latents = 0;
  /// An image advances the clock by 1, a video by its duration.
  bool is_image = false;
};

/// Text to video and sound. `num_audio_latents` counts per channel; the sound takes twice as many
/// rows. Throws InternalError for sizes that no validated request has (zero, odd heights, ...).
[[nodiscard]] PackedSequence pack_t2va(std::int64_t num_text_rows, const LatentSize& video,
                                       std::int64_t num_audio_latents);
/// Keyframes to video. `text_tags` are the modality tags of the text rows: rows of vision blocks
/// are kVideo, others kText.
[[nodiscard]] PackedSequence pack_fl2va(std::span<const Modality> text_tags, Keyframes keyframes,
                                        const LatentSize& video, std::int64_t num_audio_latents);
/// References to video.
[[nodiscard]] PackedSequence pack_ref2va(std::span<const Modality> text_tags,
                                         std::span<const Reference> references,
                                         const LatentSize& video, std::int64_t num_audio_latents);

}  // namespace miniacc
