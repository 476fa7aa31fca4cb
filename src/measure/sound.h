#pragma once

#include <cstdint>
#include <vector>

#include "io/media/media_reader.h"
#include "measure/measured.h"

namespace miniacc::measure {

/// Below this root mean square a sound counts as silence (-48 dB of full scale).
inline constexpr double kSilenceRms = 0.004;

/// Frequency of the strongest tone between 100 and 4000 Hz: peak of the power spectrum, averaged
/// over Hann windows of half a second and both channels, interpolated between bins. Unknown for
/// silence, for a clip without sound and where no tone stands out (noise).
[[nodiscard]] Measured<double> measure_pitch(const Clip& clip);

/// Index into kPitchNames of a frequency within 6 % of a tone of the world.
[[nodiscard]] Measured<std::size_t> pitch_class(const Measured<double>& pitch_hz);

/// Starts of short sounds: the level rises from under 15 % to over 30 % of its peak and falls back
/// within a quarter of a second. A running tone has none.
[[nodiscard]] std::vector<double> find_beeps(const Clip& clip);

/// Where the sound comes from at a time: 0 left, 1 right, by the equal-power pan law
/// (left = cos, right = sin of a quarter turn). Unknown in silence and for sound in one channel.
/// `window_s` seconds from `time_s` on are heard.
[[nodiscard]] Measured<double> pan_at(const Clip& clip, double time_s, double window_s);

}  // namespace miniacc::measure
