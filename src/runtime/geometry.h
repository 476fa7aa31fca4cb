#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"

namespace miniacc {

inline constexpr std::int64_t kFramesPerSecond = 24;
inline constexpr std::int64_t kSampleRateHz = 32000;

/// Sizes of a clip that the model can make, and of its latents. Source: spec model.md §5.2.
struct ClipGeometry {
  std::int64_t width = 0;  ///< pixels, a multiple of 32
  std::int64_t height = 0;
  std::int64_t num_frames = 0;     ///< 17·n + 5
  std::int64_t latent_frames = 0;  ///< 5·n + 2
  std::int64_t latent_height = 0;  ///< height / 16
  std::int64_t latent_width = 0;
  std::int64_t audio_latents = 0;  ///< round(frames / 24 · 40)
};

struct Canvas {
  std::int64_t width = 0;
  std::int64_t height = 0;
};
/// What canvases follow; the defaults are the released model's.
struct CanvasRule {
  std::int64_t short_edge = 768;
  std::int64_t max_pixels = 1344 * 768;
};
/// The size that the released model was trained on for an aspect ratio width:height, e.g. 1344×768
/// for 16:9: short edge 768, at most 1344·768 pixels, sides rounded to multiples of 32 (halves to
/// even). kInvalidArgument outside 1:4 … 4:1. Source: spec model.md §5.1.
[[nodiscard]] Result<Canvas> canvas_of_aspect(double aspect_width, double aspect_height,
                                              const CanvasRule& rule = {});

/// Smallest legal frame count >= num_frames.
std::int64_t round_up_frames(std::int64_t num_frames);
/// Frames of a duration: round(24·seconds) to even, then up to the grid.
Result<std::int64_t> frames_of_seconds(double seconds);

/// Rounds sizes up to what the model can make; each change is one sentence in `notes`. Refuses what
/// has no neighbour to round to, naming the nearest possible value.
[[nodiscard]] Result<ClipGeometry> fit_geometry(std::int64_t width, std::int64_t height,
                                                std::int64_t num_frames,
                                                std::vector<std::string>& notes);

}  // namespace miniacc
