#pragma once

#include <cstdint>

extern "C" {
#include <libavutil/rational.h>
}

namespace miniacc::libav {

inline constexpr int kModelFps = 24;

/// Places the frames of a stream on the model's grid of 24 frames a second: a time t goes to the
/// slot floor(24 t + 0.5).
class FrameClock {
 public:
  /// `time_base`: seconds a tick; `rate`: the rate the container states, 0 when it states none.
  FrameClock(AVRational time_base, AVRational rate) : time_base_(time_base), rate_(rate) {}

  /// Slot of frame `index` (from 0) that begins `ticks` after the first frame. Where that is the
  /// constant rate's time, up to the one tick by which containers round, the exact time
  /// index / rate is taken, so that a file in milliseconds gives the same frames as any other.
  /// Negative ticks (a damaged file) are slot 0.
  [[nodiscard]] std::int64_t slot(std::int64_t index, std::int64_t ticks) const;

  /// Ticks that a frame lasts at the stated rate, or at 24 a second.
  [[nodiscard]] std::int64_t frame_ticks() const;
  /// Ticks of frame `index` at that rate, for a stream without timestamps.
  [[nodiscard]] std::int64_t nominal_ticks(std::int64_t index) const;

 private:
  [[nodiscard]] bool has_rate() const { return rate_.num > 0 && rate_.den > 0; }

  AVRational time_base_;
  AVRational rate_;
};

/// Slot of frame `index` of a stream of constant rate, as the reference computes it.
std::int64_t constant_rate_slot(std::int64_t index, double fps);

}  // namespace miniacc::libav
