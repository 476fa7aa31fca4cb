#include "model/dit/packed_sequence.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace miniacc {
namespace {

/// Time axis: 1 is one audio latent (1/40 s), so a video frame (1/24 s) takes 5/3.
constexpr double kFrameSpan = 5.0 / 3.0;
/// A latent chunk of 17 frames is 5 latent frames: one frame, then four times four.
constexpr std::int64_t kLatentsPerChunk = 5;
/// Positions of a square latent grid cover [0, 32) on both axes.
constexpr double kSpatialExtent = 32.0;

double latent_frame_span(std::int64_t frame) {
  return frame % kLatentsPerChunk == 0 ? kFrameSpan : 4.0 * kFrameSpan;
}

double video_span(std::int64_t num_frames) {
  double span = 0.0;
  for (std::int64_t frame = 0; frame < num_frames; ++frame) {
    span += latent_frame_span(frame);
  }
  return span;
}

/// Positions of the patches along one axis of `length` latent pixels, when the grid's area is that
/// of a square of side `side`.
std::vector<double> axis_positions(std::int64_t length, double side) {
  const double ratio = static_cast<double>(length) / side;
  const double left = (1.0 - ratio) / 2.0;
  const std::int64_t count = length / 2;
  const double step = ((left + ratio) - left) / static_cast<double>(count);
  std::vector<double> positions(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    positions[static_cast<std::size_t>(i)] =
        (left + static_cast<double>(i) * step) * kSpatialExtent;
  }
  return positions;
}

/// Patch positions of a latent grid; every visual segment uses those of its own size.
struct Grid {
  explicit Grid(const LatentSize& size) {
    MINIACC_REQUIRE(size.num_frames > 0 && size.height > 0 && size.width > 0,
                    "packed sequence: latent sizes are positive");
    MINIACC_REQUIRE(size.height % 2 == 0 && size.width % 2 == 0,
                    "packed sequence: latent height and width are even");
    const double side = std::sqrt(static_cast<double>(size.height * size.width));
    rows = axis_positions(size.height, side);
    columns = axis_positions(size.width, side);
  }
  std::vector<double> rows;
  std::vector<double> columns;
};

class Builder {
 public:
  explicit Builder(std::span<const Modality> text_tags) {
    MINIACC_REQUIRE(!text_tags.empty(), "packed sequence: there is at least one text row");
    begin(SegmentKind::kText);
    for (std::size_t i = 0; i < text_tags.size(); ++i) {
      add_row(static_cast<double>(i), 0.0, 0.0, text_tags[i]);
    }
    end();
  }

  void add_frames(SegmentKind kind, const Grid& grid, double origin, std::int64_t num_frames) {
    begin(kind);
    double time = origin;
    for (std::int64_t frame = 0; frame < num_frames; ++frame) {
      for (const double h : grid.rows) {
        for (const double w : grid.columns) {
          add_row(time, h, w, Modality::kVideo);
        }
      }
      time += latent_frame_span(frame);
    }
    end();
  }

  /// Left rows, then right rows; the channels sit at the two ends of `grid`.
  void add_audio(SegmentKind kind, const Grid& grid, double origin, std::int64_t num_latents) {
    MINIACC_REQUIRE(num_latents > 0, "packed sequence: there is at least one audio latent");
    begin(kind);
    for (const double w : {grid.columns.front(), grid.columns.back()}) {
      for (std::int64_t latent = 0; latent < num_latents; ++latent) {
        add_row(origin + static_cast<double>(latent), 0.0, w, Modality::kAudio);
      }
    }
    end();
  }

  PackedSequence finish(const Grid& grid, double origin, std::int64_t num_frames,
                        std::int64_t num_audio_latents) {
    add_audio(SegmentKind::kTargetAudio, grid, origin, num_audio_latents);
    add_frames(SegmentKind::kTargetVideo, grid, origin, num_frames);
    return std::move(sequence_);
  }

 private:
  void begin(SegmentKind kind) { sequence_.segments.push_back({kind, {sequence_.num_rows(), 0}}); }
  void end() {
    RowRange& rows = sequence_.segments.back().rows;
    rows.count = sequence_.num_rows() - rows.first;
  }
  void add_row(double t, double h, double w, Modality tag) {
    sequence_.position_ids.insert(sequence_.position_ids.end(), {t, h, w});
    sequence_.tags.push_back(static_cast<std::int32_t>(tag));
  }

  PackedSequence sequence_;
};

std::int64_t count_rows(const std::vector<Segment>& segments, SegmentKind a, SegmentKind b) {
  std::int64_t count = 0;
  for (const Segment& segment : segments) {
    if (segment.kind == a || segment.kind == b) {
      count += segment.rows.count;
    }
  }
  return count;
}

float segment_time(SegmentKind kind, float video_time, float audio_time) {
  switch (kind) {
    case SegmentKind::kText:
    case SegmentKind::kTargetVideo:
      return video_time;
    case SegmentKind::kTargetAudio:
      return audio_time;
    case SegmentKind::kVideoCondition:
      return std::max(video_time, kVisualConditionTime);
    case SegmentKind::kAudioCondition:
      break;
  }
  return kAudioConditionTime;
}

}  // namespace

std::int64_t PackedSequence::num_video_rows() const {
  return count_rows(segments, SegmentKind::kVideoCondition, SegmentKind::kTargetVideo);
}

std::int64_t PackedSequence::num_audio_rows() const {
  return count_rows(segments, SegmentKind::kAudioCondition, SegmentKind::kTargetAudio);
}

std::vector<float> PackedSequence::distinct_times(float video_time, float audio_time) const {
  MINIACC_REQUIRE(std::isfinite(video_time) && std::isfinite(audio_time),
                  "packed sequence: times are finite");
  std::vector<float> times;
  for (const Segment& segment : segments) {
    times.push_back(segment_time(segment.kind, video_time, audio_time));
  }
  std::ranges::sort(times);
  times.erase(std::unique(times.begin(), times.end()), times.end());
  return times;
}

RowTimesteps PackedSequence::timesteps(float video_time, float audio_time) const {
  RowTimesteps result;
  result.distinct = distinct_times(video_time, audio_time);
  result.timestep_index.reserve(tags.size());
  result.adaln_row.reserve(tags.size());
  for (const Segment& segment : segments) {
    const float time = segment_time(segment.kind, video_time, audio_time);
    const auto position = std::ranges::find(result.distinct, time) - result.distinct.begin();
    const auto index = static_cast<std::int32_t>(position);
    for (std::int64_t row = segment.rows.first; row < segment.rows.end(); ++row) {
      result.timestep_index.push_back(index);
      result.adaln_row.push_back(index * static_cast<std::int32_t>(kNumModalities) +
                                 tags[static_cast<std::size_t>(row)]);
    }
  }
  return result;
}

PackedSequence pack_t2va(std::int64_t num_text_rows, const LatentSize& video,
                         std::int64_t num_audio_latents) {
  MINIACC_REQUIRE(num_text_rows > 0, "packed sequence: there is at least one text row");
  const std::vector<Modality> tags(static_cast<std::size_t>(num_text_rows), Modality::kText);
  return pack_fl2va(tags, {}, video, num_audio_latents);
}

PackedSequence pack_fl2va(std::span<const Modality> text_tags, Keyframes keyframes,
                          const LatentSize& video, std::int64_t num_audio_latents) {
  const Grid grid(video);
  const auto origin = static_cast<double>(text_tags.size());
  Builder builder(text_tags);
  if (keyframes.first) {
    builder.add_frames(SegmentKind::kVideoCondition, grid, origin, 1);
  }
  if (keyframes.last) {
    const double anchor = origin + video_span(video.num_frames) - kFrameSpan;
    builder.add_frames(SegmentKind::kVideoCondition, grid, anchor, 1);
  }
  return builder.finish(grid, origin, video.num_frames, num_audio_latents);
}

PackedSequence pack_ref2va(std::span<const Modality> text_tags,
                           std::span<const Reference> references, const LatentSize& video,
                           std::int64_t num_audio_latents) {
  const Grid target(video);
  auto clock = static_cast<double>(text_tags.size());
  Builder builder(text_tags);
  for (const Reference& reference : references) {
    MINIACC_REQUIRE(reference.visual || reference.num_audio_latents > 0,
                    "packed sequence: a reference has a picture or sound");
    const Grid grid = reference.visual ? Grid(*reference.visual) : target;
    if (reference.num_audio_latents > 0) {
      builder.add_audio(SegmentKind::kAudioCondition, grid, clock, reference.num_audio_latents);
    }
    double advance = static_cast<double>(reference.num_audio_latents);
    if (reference.visual) {
      const std::int64_t num_frames = reference.visual->num_frames;
      builder.add_frames(SegmentKind::kVideoCondition, grid, clock, num_frames);
      advance = reference.is_image ? 1.0 : std::max(advance, video_span(num_frames));
    }
    clock += advance;
  }
  return builder.finish(target, clock, video.num_frames, num_audio_latents);
}

}  // namespace miniacc
