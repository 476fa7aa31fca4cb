#pragma once

#include <vector>

#include "io/media/media_reader.h"
#include "measure/measured.h"
#include "measure/motion.h"

namespace miniacc::measure {

/// How sound and picture go together.
struct Synchrony {
  std::vector<double> offsets_ms;     ///< beep minus bounce of each pair; positive: sound is late
  Measured<double> median_offset_ms;  ///< of the pairs
  std::size_t silent_bounces = 0;     ///< bounces without a beep
  std::size_t stray_beeps = 0;        ///< beeps without a bounce while the subject is in view
  Measured<double> pan_correlation;   ///< of the sound's pan with the subject's place, -1 to 1
  Measured<double> pan_error;         ///< mean distance of pan and place, in picture widths
  std::vector<std::optional<double>> pan;  ///< of each track point: 0 left, 1 right
};

/// Pairs each bounce with the nearest free beep within half the pace of the bounces (at most a
/// quarter of a second), and compares the pan of each frame's sound with the subject's place in it.
/// `aspect`: picture width in heights; `frame_s`: length of a frame.
[[nodiscard]] Synchrony measure_synchrony(const Clip& clip, const std::vector<TrackPoint>& track,
                                          const MotionReport& motion,
                                          const std::vector<double>& beeps_s, double aspect,
                                          double frame_s);

}  // namespace miniacc::measure
