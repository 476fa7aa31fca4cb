#pragma once

#include <cstdint>
#include <vector>

namespace miniacc {

/// Kaiser-windowed sinc low-pass, normalised to sum 1.
///   taps        number of taps, even
///   cutoff      as a fraction of the sampling rate
///   half_width  of the transition band, same unit
/// Source: Kaiser 1974; spec vae.md §4.3.
std::vector<float> kaiser_sinc_filter(std::int64_t taps, double cutoff, double half_width);

/// The filter around every SnakeBeta, for a factor of 2; the released model has 12 taps.
/// Checkpoints may leave it out.
std::vector<float> antialiasing_filter(std::int64_t taps = 12);

}  // namespace miniacc
