#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "measure/measured.h"
#include "measure/pictures.h"
#include "measure/vocabulary.h"

namespace miniacc::measure {

/// The subject in one frame. Lengths in pixels of the measured picture; pixel (0, 0) covers
/// [0, 1) x [0, 1), y points down.
struct SubjectFrame {
  std::int64_t frame = 0;
  bool at_edge = false;  ///< touches the picture's edge: partly outside
  double area = 0.0;     ///< sum of coverages
  double x = 0.0;        ///< centre of coverage
  double y = 0.0;
  Rgb color = {};  ///< mean of its inner pixels
  // The box that holds all covered pixels, and their coverage in 1/255.
  int left = 0;
  int top = 0;
  int width = 0;
  int height = 0;
  std::vector<std::uint8_t> matte;  ///< [height, width]

  /// Coverage 0 to 1 at a place relative to the box; 0 outside it.
  [[nodiscard]] double alpha_at(int column, int row) const {
    if (column < 0 || row < 0 || column >= width || row >= height) {
      return 0.0;
    }
    return matte[static_cast<std::size_t>(row) * static_cast<std::size_t>(width) +
                 static_cast<std::size_t>(column)] /
           255.0;
  }
};

/// The one thing that moves before the background, followed through the clip.
struct Subject {
  std::vector<SubjectFrame> frames;  ///< frames in which it is seen, in order
  Rgb color = {};                    ///< median of its inner pixels over all frames
  /// Share of its inner pixels within 60 levels (Euclidean) of `color`.
  double color_purity = 0.0;
  double seen_share = 0.0;  ///< frames with the subject, of all frames
};

/// Finds the subject: connected pieces that stand out from the background by kContrastLevels and
/// have at least 0.2 % of a squared picture height. The largest piece of the clip starts the track,
/// which follows the nearest piece both ways in time, so that a second shape at rest is not mixed
/// in. Coverage at the edges comes from the colours (a pixel half way between background and
/// subject is half covered). Unknown where nothing stands out or where what does is no steady
/// thing: too busy a background, pieces that fill the picture, a track that jumps about.
[[nodiscard]] Measured<Subject> find_subject(const Pictures& pictures,
                                             const Background& background);

}  // namespace miniacc::measure
