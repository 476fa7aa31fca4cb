#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "io/media/media_reader.h"

namespace miniacc::measure {

/// The frames of a clip at the size at which they are measured.
struct Pictures {
  int width = 0;
  int height = 0;
  std::int64_t num_frames = 0;
  std::vector<std::uint8_t> rgb;  ///< [num_frames, height, width, 3]

  /// First byte of a pixel.
  [[nodiscard]] const std::uint8_t* pixel(std::int64_t frame, int x, int y) const {
    return rgb.data() + ((frame * height + y) * width + x) * 3;
  }
};

/// Averages squares of pixels so that the shorter side has 128 to 255 of them: larger pictures
/// measure no better (edges are located to a fraction of a pixel). Smaller ones are only copied.
[[nodiscard]] Pictures reduce(const Clip& clip);

/// The background as one colour a row: h3-tiny's world has plain walls, vertical gradients and
/// floors. Each row's colour is the median over all frames of the pixels near both side edges.
struct Background {
  std::vector<std::array<std::uint8_t, 3>> rows;
  /// Share of those edge pixels that the row's colour does not explain; large where the background
  /// is a texture, noise or a scene.
  double unexplained = 0.0;
};
/// More than this is no plain background. A second shape at rest in a corner makes 0.03.
inline constexpr double kMaxUnexplained = 0.25;
[[nodiscard]] Background estimate_background(const Pictures& pictures);

/// A pixel stands out where a channel differs by more levels than this from its row's background.
inline constexpr int kContrastLevels = 41;
[[nodiscard]] bool stands_out(const std::uint8_t* pixel,
                              const std::array<std::uint8_t, 3>& background);

/// Median of values from 0 to 255 in a histogram; 0 when it is empty.
[[nodiscard]] int histogram_median(const std::array<std::int64_t, 256>& histogram);

}  // namespace miniacc::measure
