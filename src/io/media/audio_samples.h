#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/error.h"

namespace miniacc {

/// Samples a channel that last as long as `num_frames` pictures: num_frames * rate / fps, rounded
/// to nearest, halves up.
std::int64_t samples_for_frames(std::int64_t num_frames, int sample_rate_hz = 32000, int fps = 24);

/// `stereo` [2, samples] cut at the end, or filled with silence, to samples_for_frames(): sound and
/// picture of a clip end together (the decoder's latents last up to 1/80 s more or less).
std::vector<float> fit_audio(std::span<const float> stereo, std::int64_t num_frames,
                             int sample_rate_hz = 32000, int fps = 24);

/// 16-bit value of a sample: clipped to [-1, 1], times 32767, rounded toward zero (the rule of
/// diffusers' exporter). The sample is finite.
std::int16_t to_pcm16(float sample);

/// kInvalidInput naming channel and position of the first NaN or infinity in [2, samples].
[[nodiscard]] Status check_finite(std::span<const float> stereo);

}  // namespace miniacc
