#include "model/support/encode_inputs.h"

namespace miniacc::testing {

RgbClip drawn_frames(std::int64_t num_frames, std::int64_t height, std::int64_t width) {
  RgbClip clip{.width = width, .height = height, .num_frames = num_frames, .pixels = {}};
  for (std::int64_t t = 0; t < num_frames; ++t) {
    for (std::int64_t y = 0; y < height; ++y) {
      for (std::int64_t x = 0; x < width; ++x) {
        for (std::int64_t c = 0; c < 3; ++c) {
          const std::int64_t waves =
              (7 * x * (c + 1) + 5 * y + 11 * t * (3 - c) + x * y / 16) % 256;
          const std::int64_t square = ((x + 3 * t) / 24 + (y + t) / 16) % 2;
          clip.pixels.push_back(static_cast<std::uint8_t>(square == 1 ? waves : 255 - waves / 2));
        }
      }
    }
  }
  return clip;
}

StereoSound drawn_sound(std::int64_t num_samples) {
  StereoSound sound{.sample_rate_hz = 32000, .num_samples = num_samples, .samples = {}};
  for (std::int64_t n = 0; n < num_samples; ++n) {
    sound.samples.push_back(static_cast<float>(n * 37 % 401 + n * n % 211 - 305) / 512.0F);
  }
  for (std::int64_t n = 0; n < num_samples; ++n) {
    sound.samples.push_back(static_cast<float>(n * 53 % 307 - n / 7 * 29 % 331 + n % 5 * 20) /
                            512.0F);
  }
  return sound;
}

}  // namespace miniacc::testing
