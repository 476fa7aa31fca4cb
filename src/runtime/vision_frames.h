#pragma once

#include <cstdint>
#include <vector>

#include "core/image.h"
#include "model/vision/vision_size.h"

namespace miniacc {

/// Frames of a reference video that the text encoder reads: two a second, frames 0, 12, 24, ... of
/// its 24 a second. Fewer than two: kInvalidArgument with the least number of frames.
/// Source: spec text_encoder.md §3.1.
[[nodiscard]] Result<std::vector<std::int64_t>> sampled_frames(std::int64_t num_frames);

/// A vision block of a video: two sampled frames. The last one stands twice where it is alone.
[[nodiscard]] std::int64_t num_video_blocks(std::int64_t num_samples);

/// What the vision tower sees of one block: a picture, or two frames.
using VisionFrames = std::vector<RgbImage>;

/// The picture at its vision_size().
[[nodiscard]] Result<VisionFrames> prepare_vision_frames(const RgbImage& picture);

/// The sampled frames of a clip at 24 frames a second, two a block, at the vision_size() of all of
/// them; frames are only resized where that is not their size already.
[[nodiscard]] Result<std::vector<VisionFrames>> prepare_vision_frames(const RgbClip& clip);

}  // namespace miniacc
