#pragma once

#include <cstdint>

#include "core/error.h"
#include "model/vision/vision_grid.h"

namespace miniacc {

/// Edge of a patch in pixels.
inline constexpr std::int64_t kVisionPatchSize = 16;
/// Edge of a merged token in pixels: what sides are multiples of.
inline constexpr std::int64_t kVisionTokenSize = 2 * kVisionPatchSize;
/// Frames of a temporal patch.
inline constexpr std::int64_t kVisionFramesPerPatch = 2;

enum class VisionKind { kImage, kVideo };

/// Size at which a picture reaches the vision tower, pixels.
struct VisionSize {
  std::int64_t width = 0;
  std::int64_t height = 0;

  [[nodiscard]] VisionGrid grid() const {
    return {.height = height / kVisionPatchSize, .width = width / kVisionPatchSize};
  }
  friend bool operator==(const VisionSize&, const VisionSize&) = default;
};

/// Qwen's "smart resize": both sides to the nearest multiple of 32 (halves to even), and where the
/// pixels of all frames together are then outside the limits (an image 65,536 to 16,777,216, a
/// video 4,096 to 25,165,824), scaled by the root of the ratio and rounded down (above) or up
/// (below). Pictures that H3's own rules have sized mostly stay as they are.
///   num_frames  sampled frames of a video, at least 2; 1 for an image
/// kInvalidArgument for a side below 1 or above 2^20, a ratio of sides above 200, and a video of
/// fewer than 2 frames. Source: spec text_encoder.md §6.2.
[[nodiscard]] Result<VisionSize> vision_size(std::int64_t width, std::int64_t height,
                                             VisionKind kind, std::int64_t num_frames = 1);

}  // namespace miniacc
