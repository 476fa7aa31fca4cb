#include "runtime/vision_frames.h"

#include <fmt/format.h>

#include "runtime/geometry.h"
#include "runtime/vision_resize.h"

namespace miniacc {
namespace {

constexpr std::int64_t kSamplesPerSecond = 2;
constexpr std::int64_t kSampleStride = kFramesPerSecond / kSamplesPerSecond;

RgbImage frame_of(const RgbClip& clip, std::int64_t index) {
  const std::int64_t frame_bytes = 3 * clip.width * clip.height;
  const auto first = clip.pixels.begin() + index * frame_bytes;
  return {.width = clip.width, .height = clip.height, .pixels = {first, first + frame_bytes}};
}

}  // namespace

Result<std::vector<std::int64_t>> sampled_frames(std::int64_t num_frames) {
  constexpr std::int64_t kFewestFrames = (kVisionFramesPerPatch - 1) * kSampleStride + 1;
  if (num_frames < kFewestFrames) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("a reference video of {} frames at {} a second, wanted at least {} "
                    "({:.2f} seconds), because the text encoder reads {} a second in pairs",
                    num_frames, kFramesPerSecond, kFewestFrames,
                    static_cast<double>(kFewestFrames) / kFramesPerSecond, kSamplesPerSecond));
  }
  std::vector<std::int64_t> samples;
  for (std::int64_t frame = 0; frame < num_frames; frame += kSampleStride) {
    samples.push_back(frame);
  }
  return samples;
}

std::int64_t num_video_blocks(std::int64_t num_samples) {
  return (num_samples + kVisionFramesPerPatch - 1) / kVisionFramesPerPatch;
}

Result<VisionFrames> prepare_vision_frames(const RgbImage& picture) {
  MINIACC_ASSIGN(const VisionSize size,
                 vision_size(picture.width, picture.height, VisionKind::kImage));
  VisionFrames frames;
  frames.push_back(resize_for_vision(picture, size.width, size.height));
  return frames;
}

Result<std::vector<VisionFrames>> prepare_vision_frames(const RgbClip& clip) {
  MINIACC_REQUIRE(static_cast<std::int64_t>(clip.pixels.size()) ==
                      3 * clip.width * clip.height * clip.num_frames,
                  "vision frames: three bytes a pixel");
  MINIACC_ASSIGN(const std::vector<std::int64_t> samples, sampled_frames(clip.num_frames));
  const auto num_samples = static_cast<std::int64_t>(samples.size());
  MINIACC_ASSIGN(const VisionSize size,
                 vision_size(clip.width, clip.height, VisionKind::kVideo, num_samples));
  std::vector<VisionFrames> blocks(static_cast<std::size_t>(num_video_blocks(num_samples)));
  for (std::size_t i = 0; i < samples.size(); ++i) {
    blocks[i / kVisionFramesPerPatch].push_back(
        resize_for_vision(frame_of(clip, samples[i]), size.width, size.height));
  }
  if (blocks.back().size() < kVisionFramesPerPatch) {
    blocks.back().push_back(blocks.back().front());
  }
  return blocks;
}

}  // namespace miniacc
