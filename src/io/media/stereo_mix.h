#pragma once

#include <array>
#include <string>
#include <vector>

#include "io/media/libav.h"

namespace miniacc::libav {

/// How the channels of a layout become left and right.
struct StereoMix {
  std::vector<std::array<float, 2>> weights;  ///< [channels]: part in left, part in right
  std::string note;                           ///< empty for mono and stereo
};

/// Mono goes to both sides unchanged, stereo stays. Others by ITU-R BS.775-3, table 2: centre and
/// surrounds with 1/sqrt(2), no low-frequency channel; scaled so that the loudest possible input
/// does not overflow. A layout that names no channels is FFmpeg's default of that number.
StereoMix stereo_mix(const AVChannelLayout& layout);

}  // namespace miniacc::libav
