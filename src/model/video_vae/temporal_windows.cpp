#include "model/video_vae/temporal_windows.h"

#include <fmt/format.h>

namespace miniacc::video_vae {
namespace {

/// Frames that padding latent `index` stands for: a chunk's first latent shows fewer.
std::int64_t frames_of_latent(std::int64_t index, const TemporalGeometry& geometry) {
  const bool first_of_chunk = index % geometry.chunk() == 0;
  return geometry.temporal_patch - (first_of_chunk ? geometry.frame_pre_padding() : 0);
}

}  // namespace

std::int64_t TemporalGeometry::kept_index(std::int64_t frame) const {
  const std::int64_t clip = frame / (chunk() * temporal_patch);  // 0: head, 1: tail
  const std::int64_t shown = frame % (chunk() * temporal_patch) - frame_pre_padding();
  return shown < 0 ? -1 : clip * clip_length + shown;
}

Status TemporalGeometry::validate() const {
  if (clip_length < 1 || temporal_patch < 1 || token_drop < 1 || token_drop >= chunk() ||
      frame_overlap() < 0 || frame_overlap() > clip_length) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("video VAE: clip_length {} and token_drop {} with {} frames a latent "
                            "leave no window of whole latents",
                            clip_length, token_drop, temporal_patch));
  }
  return {};
}

TemporalPlan plan_windows(std::int64_t num_latents, const TemporalGeometry& geometry) {
  MINIACC_REQUIRE(num_latents > 0, "plan_windows: at least one latent");
  const std::int64_t chunk = geometry.chunk();
  const std::int64_t padded = num_latents + geometry.token_drop;
  TemporalPlan plan{.num_latents = num_latents, .num_padding = (chunk - padded % chunk) % chunk};
  plan.num_windows = (padded + plan.num_padding) / chunk - 1;
  if (plan.num_windows < 1) {
    plan.num_padding += (1 - plan.num_windows) * chunk;
    plan.num_windows = 1;
  }
  plan.num_frames = plan.num_windows * geometry.clip_length + geometry.frame_overlap();
  if (num_latents == 1) {
    // A still: off the model's distribution as a window of its own, so it is shown by the first
    // frame of a window of copies.
    plan.num_frames = 1;
    return plan;
  }
  for (std::int64_t k = 0; k < plan.num_padding; ++k) {
    plan.num_frames -= frames_of_latent(num_latents + k, geometry);
  }
  return plan;
}

}  // namespace miniacc::video_vae
