#pragma once

#include <optional>
#include <vector>

#include "measure/measured.h"
#include "measure/vocabulary.h"

namespace miniacc::measure {

/// The subject's path. Lengths in picture heights, y down, x from 0 to the aspect ratio.
struct TrackPoint {
  double time_s = 0.0;
  double x = 0.0;
  double y = 0.0;
  double radius = 0.0;   ///< of the fitted shape
  double angle = 0.0;    ///< radians, clockwise, known up to the shape's symmetry
  bool at_edge = false;  ///< partly outside the picture: place and radius are off
};

struct MotionReport {
  Measured<Motion> motion;
  Measured<std::size_t> speed;  ///< index into kSpeedNames
  /// The number behind `speed`: widths or heights a second (directions), turns a second (circling,
  /// spinning), bounces a second, share of the full radius a second (growing).
  std::optional<double> rate;
  std::optional<bool> clockwise;  ///< circling and spinning
  std::vector<double> bounces_s;  ///< times at which a fall turns sharply into a rise
};

/// Times at which the height turns sharply, to a fraction of a frame: parabolas through the points
/// before and after (free flight) meet there.
[[nodiscard]] std::vector<double> find_bounces(const std::vector<TrackPoint>& track);

/// Names the motion of a path. `symmetry`: turns that bring the shape onto itself, 0 when a turn
/// cannot be seen. `aspect`: picture width in heights. A path that is none of the named motions
/// stays unknown.
[[nodiscard]] MotionReport classify_motion(const std::vector<TrackPoint>& track, int symmetry,
                                           double aspect);

}  // namespace miniacc::measure
