#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace miniacc::audio_vae {

enum class SoundState {
  kSound,      ///< finite and moving
  kFlat,       ///< every channel is one constant value: silence, or a line stuck at full scale
  kNonFinite,  ///< a sample is NaN or infinite
};

/// What is wrong with a waveform before an encoder refuses it or a listener hears nothing.
struct SoundReport {
  SoundState state = SoundState::kSound;
  std::int64_t num_non_finite = 0;
  float peak = 0.0F;           ///< largest absolute finite sample
  float largest_swing = 0.0F;  ///< highest minus lowest finite sample, of the liveliest channel
};

/// Below half a step of 16-bit audio nothing is left to hear.
inline constexpr float kFlatSwing = 0.5F / 32768.0F;

/// samples [channels, n] f32, contiguous, in host memory. No samples at all are kFlat.
SoundReport check_sound(ConstTensorView samples);

/// "sound", "flat" or "non_finite", for reports that programs read.
const char* sound_state_name(SoundState state);

}  // namespace miniacc::audio_vae
