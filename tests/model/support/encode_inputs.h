#pragma once

#include <cstdint>

#include "core/image.h"

namespace miniacc::testing {

/// The frames and sounds that tools/reference/video_encode.py and audio_encode.py draw from whole
/// numbers.
RgbClip drawn_frames(std::int64_t num_frames, std::int64_t height, std::int64_t width);
StereoSound drawn_sound(std::int64_t num_samples);

}  // namespace miniacc::testing
