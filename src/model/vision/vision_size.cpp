#include "model/vision/vision_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace miniacc {
namespace {

constexpr std::int64_t kLargestSide = std::int64_t{1} << 20;
constexpr std::int64_t kMostFrames = std::int64_t{1} << 20;
constexpr double kLargestRatio = 200.0;

/// Pixels of all frames together.
struct PixelLimits {
  std::int64_t least = 0;
  std::int64_t most = 0;
};
constexpr PixelLimits kImageLimits = {65'536, 16'777'216};
constexpr PixelLimits kVideoLimits = {4'096, 25'165'824};

/// value to a multiple of unit. nearbyint rounds halves to even, as the reference's round() does;
/// both divisions are exact in double at these sizes.
std::int64_t round_to(std::int64_t value, std::int64_t unit) {
  return static_cast<std::int64_t>(
             std::nearbyint(static_cast<double>(value) / static_cast<double>(unit))) *
         unit;
}

std::int64_t floor_to_token(double value) {
  const auto tokens =
      static_cast<std::int64_t>(std::floor(value / static_cast<double>(kVisionTokenSize)));
  return std::max<std::int64_t>(1, tokens) * kVisionTokenSize;
}

std::int64_t ceil_to_token(double value) {
  return static_cast<std::int64_t>(std::ceil(value / static_cast<double>(kVisionTokenSize))) *
         kVisionTokenSize;
}

Status check_request(std::int64_t width, std::int64_t height, VisionKind kind,
                     std::int64_t num_frames) {
  const char* what = kind == VisionKind::kImage ? "picture" : "video";
  if (width < 1 || height < 1 || width > kLargestSide || height > kLargestSide) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("vision tower: a {} of {}x{} pixels, wanted sides from 1 to {}", what,
                            width, height, kLargestSide));
  }
  const double ratio =
      static_cast<double>(std::max(width, height)) / static_cast<double>(std::min(width, height));
  if (ratio > kLargestRatio) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("vision tower: a {} of {}x{} pixels is {:.4g} times as long as wide, "
                            "wanted at most {:g}: crop it",
                            what, width, height, ratio, kLargestRatio));
  }
  if (kind == VisionKind::kVideo &&
      (num_frames < kVisionFramesPerPatch || num_frames > kMostFrames)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("vision tower: a video of {} sampled frames, wanted {} to {}",
                            num_frames, kVisionFramesPerPatch, kMostFrames));
  }
  return {};
}

}  // namespace

Result<VisionSize> vision_size(std::int64_t width, std::int64_t height, VisionKind kind,
                               std::int64_t num_frames) {
  MINIACC_REQUIRE(kind == VisionKind::kVideo || num_frames == 1,
                  "vision_size: an image is 1 frame");
  MINIACC_RETURN_IF_ERROR(check_request(width, height, kind, num_frames));
  const PixelLimits limits = kind == VisionKind::kImage ? kImageLimits : kVideoLimits;
  const std::int64_t counted_frames =
      kind == VisionKind::kImage ? 1 : round_to(num_frames, kVisionFramesPerPatch);
  if (kind == VisionKind::kVideo && std::min(width, height) < kVisionTokenSize) {
    // The video rule alone first brings the smaller side to one token.
    const double scale =
        static_cast<double>(kVisionTokenSize) / static_cast<double>(std::min(width, height));
    width = static_cast<std::int64_t>(static_cast<double>(width) * scale);
    height = static_cast<std::int64_t>(static_cast<double>(height) * scale);
  }
  VisionSize size = {.width = round_to(width, kVisionTokenSize),
                     .height = round_to(height, kVisionTokenSize)};
  const std::int64_t pixels = counted_frames * size.width * size.height;
  // The sampled frames count here, not the even number above.
  const double source_pixels = static_cast<double>(num_frames * height * width);
  if (pixels > limits.most) {
    const double shrink = std::sqrt(source_pixels / static_cast<double>(limits.most));
    size.width = floor_to_token(static_cast<double>(width) / shrink);
    size.height = floor_to_token(static_cast<double>(height) / shrink);
  } else if (pixels < limits.least) {
    const double grow = std::sqrt(static_cast<double>(limits.least) / source_pixels);
    size.width = ceil_to_token(static_cast<double>(width) * grow);
    size.height = ceil_to_token(static_cast<double>(height) * grow);
  }
  return size;
}

}  // namespace miniacc
