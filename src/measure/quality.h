#pragma once

#include "io/media/media_reader.h"
#include "measure/measured.h"
#include "measure/motion.h"
#include "measure/subject.h"

namespace miniacc::measure {

/// Quality that needs no caption. Scores run from 0 (bad) to 1.
struct Quality {
  /// Root mean square, over frames and pixels off the subject, of the difference from the pixel's
  /// mean over time, in levels.
  Measured<double> background_change;
  Measured<double> background_stability;  ///< 1 - background_change / 25.5, at least 0
  Measured<double> subject_overlap;       ///< mean overlap with the shape it is taken for
  Measured<double> subject_color_change;  ///< root mean square change of its mean colour, levels
  Measured<double> subject_size_change;   ///< root mean square off the straight line, of the radius
  /// seen share x subject_overlap x (1 - colour change / 25.5) x (1 - size change), each at least
  /// 0.
  Measured<double> subject_stability;
  /// Variance of the Laplacian (4 neighbours) of the luma at full size, mean over frames, squared
  /// levels (Pech-Pacheco et al. 2000). Comparable between clips of the same caption and size only.
  Measured<double> sharpness;
};

/// `subject` and `shape` may be unknown: what rests on them is then unknown too.
[[nodiscard]] Quality measure_quality(const Clip& clip, const Pictures& pictures,
                                      const Measured<Subject>& subject,
                                      const Measured<ShapeKind>& shape,
                                      const std::vector<TrackPoint>& track);

}  // namespace miniacc::measure
