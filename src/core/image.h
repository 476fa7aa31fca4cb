#pragma once

#include <cstdint>
#include <vector>

namespace miniacc {

/// An 8-bit RGB picture.
struct RgbImage {
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::vector<std::uint8_t> pixels;  ///< [height, width, 3]
};

/// Pictures of one size in order.
struct RgbClip {
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::int64_t num_frames = 0;
  std::vector<std::uint8_t> pixels;  ///< [num_frames, height, width, 3]
};

/// Stereo sound, both channels of one length.
struct StereoSound {
  std::int64_t sample_rate_hz = 0;
  std::int64_t num_samples = 0;  ///< of a channel
  std::vector<float> samples;    ///< [2, num_samples]
};

}  // namespace miniacc
