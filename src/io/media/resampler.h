#pragma once

#include <string>

#include "core/error.h"
#include "core/image.h"

namespace miniacc {

/// `sound` at another rate, ceil(num_samples * to / from) samples long: sample 0 stays at time 0,
/// nothing is cut. libsoxr's best quality where FFmpeg has it (Debian's does), else libswresample
/// with a windowed sinc of 128 taps; `name` says which. The same rate is a copy. kInternal when
/// libswresample refuses. Private to the io layer.
struct Resampled {
  StereoSound sound;
  std::string name;  ///< of the resampler, empty for a copy
};
[[nodiscard]] Result<Resampled> resample(StereoSound sound, int sample_rate_hz);

}  // namespace miniacc
