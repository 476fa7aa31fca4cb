#pragma once

#include <cstdint>

#include "core/error.h"

namespace miniacc::video_vae {

/// How the time axis is cut. A chunk of latents stands for one clip of frames; the decoder sees one
/// chunk plus the start of the next, and the frames both windows show are cross-faded.
/// Source: spec vae.md §2.6; numbers in comments are the released model's.
struct TemporalGeometry {
  std::int64_t clip_length = 17;    ///< frames of a clip
  std::int64_t token_drop = 3;      ///< latents missing from the last chunk
  std::int64_t temporal_patch = 4;  ///< frames a latent decodes to

  /// Latents of a clip, 5.
  [[nodiscard]] std::int64_t chunk() const {
    return (clip_length + temporal_patch - 1) / temporal_patch;
  }
  /// Decoded frames of a chunk's first latent that show nothing, 3.
  [[nodiscard]] std::int64_t frame_pre_padding() const {
    return chunk() * temporal_patch - clip_length;
  }
  /// Latents two windows share, 2.
  [[nodiscard]] std::int64_t token_overlap() const { return chunk() - token_drop; }
  /// Latents of a window, 7.
  [[nodiscard]] std::int64_t window() const { return chunk() + token_overlap(); }
  /// Frames two windows share, 5.
  [[nodiscard]] std::int64_t frame_overlap() const {
    return token_overlap() * temporal_patch - frame_pre_padding();
  }
  /// Frames of a window that are shown: one clip and the overlap, 22.
  [[nodiscard]] std::int64_t kept_frames() const { return clip_length + frame_overlap(); }
  /// Where decoded frame `frame` of a window goes among the kept ones, or -1 where it is dropped:
  /// both chunks of a window start with frame_pre_padding() frames that show nothing.
  [[nodiscard]] std::int64_t kept_index(std::int64_t frame) const;
  /// kInvalidInput unless 0 < token_drop < chunk() and 0 <= frame_overlap() <= clip_length.
  [[nodiscard]] Status validate() const;
};

/// The windows of a clip. Window i decodes latents [i·chunk, i·chunk + window); latents past the
/// last one repeat it.
struct TemporalPlan {
  std::int64_t num_latents = 0;
  std::int64_t num_padding = 0;  ///< copies of the last latent
  std::int64_t num_windows = 0;
  std::int64_t num_frames = 0;  ///< of the whole result
};

/// One window at least: fewer latents than that need (1 or 2) are padded to a whole window, and of
/// a lone latent one frame is kept. num_latents is positive.
TemporalPlan plan_windows(std::int64_t num_latents, const TemporalGeometry& geometry);

}  // namespace miniacc::video_vae
