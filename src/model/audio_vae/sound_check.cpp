#include "model/audio_vae/sound_check.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace miniacc::audio_vae {

SoundReport check_sound(ConstTensorView samples) {
  MINIACC_REQUIRE(samples.shape.rank() == 2 && samples.is_contiguous(),
                  "check_sound: samples are [channels, n]");
  SoundReport report;
  const std::int64_t length = samples.dim(1);
  for (std::int64_t channel = 0; channel < samples.dim(0); ++channel) {
    const float* values = samples.f32() + channel * length;
    float lowest = std::numeric_limits<float>::infinity();
    float highest = -std::numeric_limits<float>::infinity();
    for (std::int64_t i = 0; i < length; ++i) {
      if (!std::isfinite(values[i])) {
        ++report.num_non_finite;
        continue;
      }
      lowest = std::min(lowest, values[i]);
      highest = std::max(highest, values[i]);
      report.peak = std::max(report.peak, std::abs(values[i]));
    }
    if (highest >= lowest) {
      report.largest_swing = std::max(report.largest_swing, highest - lowest);
    }
  }
  if (report.num_non_finite > 0) {
    report.state = SoundState::kNonFinite;
  } else if (report.largest_swing < kFlatSwing) {
    report.state = SoundState::kFlat;
  }
  return report;
}

const char* sound_state_name(SoundState state) {
  switch (state) {
    case SoundState::kSound:
      return "sound";
    case SoundState::kFlat:
      return "flat";
    case SoundState::kNonFinite:
      return "non_finite";
  }
  return "unknown";
}

}  // namespace miniacc::audio_vae
