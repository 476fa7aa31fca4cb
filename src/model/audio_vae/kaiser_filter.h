#pragma once

#include <cstdint>
#include <vector>

namespace miniacc::audio_vae {

/// Kaiser-windowed sinc low-pass, normalised to sum 1.
///   taps        number of taps, even
///   cutoff      as a fraction of the sampling rate
///   half_width  of the transition band, same unit
/// Source: Kaiser 1974; spec vae.md §4.3.
std::vector<float> kaiser_sinc_filter(std::int64_t taps, double cutoff, double half_width);

/// The filter around every SnakeBeta, 12 taps for a factor of 2; checkpoints may leave it out.
std::vector<float> antialiasing_filter();

}  // namespace miniacc::audio_vae
