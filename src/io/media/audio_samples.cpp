#include "io/media/audio_samples.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace miniacc {

std::int64_t samples_for_frames(std::int64_t num_frames, int sample_rate_hz, int fps) {
  MINIACC_REQUIRE(num_frames >= 0 && sample_rate_hz > 0 && fps > 0,
                  "samples_for_frames: needs a count, a rate and a frame rate");
  return (2 * num_frames * sample_rate_hz + fps) / (2 * std::int64_t{fps});
}

std::vector<float> fit_audio(std::span<const float> stereo, std::int64_t num_frames,
                             int sample_rate_hz, int fps) {
  MINIACC_REQUIRE(stereo.size() % 2 == 0, "fit_audio: sound is [2, samples]");
  const auto wanted = static_cast<std::size_t>(samples_for_frames(num_frames, sample_rate_hz, fps));
  const std::size_t have = stereo.size() / 2;
  std::vector<float> fitted(2 * wanted, 0.0F);
  for (std::size_t channel = 0; channel < 2; ++channel) {
    const auto source = stereo.subspan(channel * have, std::min(have, wanted));
    std::copy(source.begin(), source.end(),
              fitted.begin() + static_cast<std::ptrdiff_t>(channel * wanted));
  }
  return fitted;
}

std::int16_t to_pcm16(float sample) {
  return static_cast<std::int16_t>(std::clamp(sample, -1.0F, 1.0F) * 32767.0F);
}

Status check_finite(std::span<const float> stereo) {
  const auto bad = std::find_if_not(stereo.begin(), stereo.end(),
                                    [](float sample) { return std::isfinite(sample); });
  if (bad == stereo.end()) {
    return {};
  }
  const auto position = static_cast<std::size_t>(bad - stereo.begin());
  const std::size_t samples = stereo.size() / 2;
  return fail(ErrorCode::kInvalidInput,
              fmt::format("sound: sample {} of the {} channel is {}", position % samples,
                          position < samples ? "left" : "right", *bad));
}

}  // namespace miniacc
