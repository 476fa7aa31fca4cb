#include "io/media/frame_clock.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

extern "C" {
#include <libavutil/mathematics.h>
}

namespace miniacc::libav {

std::int64_t FrameClock::slot(std::int64_t index, std::int64_t ticks) const {
  // Halves go up; libav's rounding away from zero is that for times from 0 on.
  if (has_rate() && std::abs(ticks - nominal_ticks(index)) <= 1) {
    return av_rescale_q_rnd(index, av_inv_q(rate_), {1, kModelFps}, AV_ROUND_NEAR_INF);
  }
  return av_rescale_q_rnd(std::max<std::int64_t>(ticks, 0), time_base_, {1, kModelFps},
                          AV_ROUND_NEAR_INF);
}

std::int64_t FrameClock::frame_ticks() const { return std::max<std::int64_t>(1, nominal_ticks(1)); }

std::int64_t FrameClock::nominal_ticks(std::int64_t index) const {
  const AVRational frame = has_rate() ? av_inv_q(rate_) : AVRational{1, kModelFps};
  return av_rescale_q(index, frame, time_base_);
}

std::int64_t constant_rate_slot(std::int64_t index, double fps) {
  return static_cast<std::int64_t>(
      std::floor(static_cast<double>(index) * (kModelFps / fps) + 0.5));
}

}  // namespace miniacc::libav
