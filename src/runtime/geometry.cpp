#include "runtime/geometry.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace miniacc {
namespace {

constexpr std::int64_t kFramesPerChunk = 17;
constexpr std::int64_t kHeadFrames = 5;
constexpr std::int64_t kSizeMultiple = 32;
// Longest clip: 64 chunks, 45.5 s. People have made clips that long; the packed sequence of a full
// canvas then holds about 330,000 rows, within 64-bit offsets and the position range of the spec.
constexpr std::int64_t kMaxFrames = 64 * kFramesPerChunk + kHeadFrames;
constexpr std::int64_t kMaxSide = 4096;
// What the released model was trained on (spec model.md §8 row 9, demands.md facts).
constexpr std::int64_t kTrainedMinFrames = 124;
constexpr std::int64_t kTrainedMaxFrames = 345;
constexpr std::int64_t kTrainedArea = 1344 * 768;

Result<std::int64_t> fit_side(std::string_view name, std::int64_t size,
                              std::vector<std::string>& notes) {
  if (size < 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the {} must be a multiple of {} pixels, got {}; the smallest is {}",
                            name, kSizeMultiple, size, kSizeMultiple));
  }
  if (size > kMaxSide) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("the {} of {} pixels is too large; the largest is {}", name, size, kMaxSide));
  }
  const std::int64_t fitted = (size + kSizeMultiple - 1) / kSizeMultiple * kSizeMultiple;
  if (fitted != size) {
    notes.push_back(
        fmt::format("{} {} is not a multiple of {}: making {}", name, size, kSizeMultiple, fitted));
  }
  return fitted;
}

}  // namespace

Result<Canvas> canvas_of_aspect(double aspect_width, double aspect_height, const CanvasRule& rule) {
  const double aspect = aspect_width / aspect_height;
  if (!(aspect_width > 0.0 && aspect_height > 0.0 && aspect >= 0.25 && aspect <= 4.0)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the aspect ratio must lie between 1:4 and 4:1, got {}:{}",
                            aspect_width, aspect_height));
  }
  const auto short_edge = static_cast<double>(rule.short_edge);
  double width = short_edge * std::max(1.0, aspect);
  double height = short_edge * std::max(1.0, 1.0 / aspect);
  const auto area = static_cast<double>(rule.max_pixels);
  if (width * height > area) {
    const double scale = std::sqrt(area / (width * height));
    width *= scale;
    height *= scale;
  }
  const auto fit = [](double side) {
    const auto units = static_cast<std::int64_t>(
        std::nearbyint(side / static_cast<double>(kSizeMultiple)));  // halves to even
    return std::max(kSizeMultiple, units * kSizeMultiple);
  };
  return Canvas{fit(width), fit(height)};
}

std::int64_t round_up_frames(std::int64_t num_frames) {
  if (num_frames <= kHeadFrames) {
    return kHeadFrames;
  }
  const std::int64_t chunks = (num_frames - kHeadFrames + kFramesPerChunk - 1) / kFramesPerChunk;
  return chunks * kFramesPerChunk + kHeadFrames;
}

Result<std::int64_t> frames_of_seconds(double seconds) {
  const double max_seconds =
      static_cast<double>(kMaxFrames) / static_cast<double>(kFramesPerSecond);
  if (!(seconds > 0.0) || seconds > max_seconds) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--seconds must lie between 0 and {:.2f}, got {}", max_seconds, seconds));
  }
  const auto frames =
      static_cast<std::int64_t>(std::nearbyint(seconds * static_cast<double>(kFramesPerSecond)));
  return round_up_frames(frames);
}

Result<ClipGeometry> fit_geometry(std::int64_t width, std::int64_t height, std::int64_t num_frames,
                                  std::vector<std::string>& notes) {
  ClipGeometry geometry;
  MINIACC_ASSIGN(geometry.width, fit_side("width", width, notes));
  MINIACC_ASSIGN(geometry.height, fit_side("height", height, notes));
  if (num_frames < 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a clip of {} frames cannot be made; the model makes 17·n + 5 frames, "
                            "the shortest clip has {}",
                            num_frames, kHeadFrames));
  }
  if (num_frames > kMaxFrames) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("a clip of {} frames is too long; the longest has {} ({:.1f} s)", num_frames,
                    kMaxFrames, static_cast<double>(kMaxFrames) / kFramesPerSecond));
  }
  geometry.num_frames = round_up_frames(num_frames);
  if (geometry.num_frames != num_frames) {
    notes.push_back(fmt::format("the model makes 17·n + 5 frames: making {} instead of {}",
                                geometry.num_frames, num_frames));
  }
  if (geometry.num_frames < kTrainedMinFrames || geometry.num_frames > kTrainedMaxFrames) {
    notes.push_back(
        fmt::format("{} frames lie outside the {} … {} that the released model was "
                    "trained on",
                    geometry.num_frames, kTrainedMinFrames, kTrainedMaxFrames));
  }
  if (geometry.width * geometry.height > kTrainedArea) {
    notes.push_back(
        fmt::format("{}×{} pixels are more than the 1344×768 that the released model "
                    "was trained on",
                    geometry.width, geometry.height));
  }
  geometry.latent_frames = (geometry.num_frames - kHeadFrames) / kFramesPerChunk * 5 + 2;
  geometry.latent_height = geometry.height / 16;
  geometry.latent_width = geometry.width / 16;
  geometry.audio_latents = static_cast<std::int64_t>(
      std::nearbyint(static_cast<double>(geometry.num_frames) / kFramesPerSecond * 40.0));
  return geometry;
}

}  // namespace miniacc
