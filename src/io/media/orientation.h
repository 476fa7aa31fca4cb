#pragma once

#include <array>
#include <cstdint>

#include "core/image.h"

namespace miniacc {

/// How a stored picture must be turned to be upright: the values of EXIF tag 0x0112 (EXIF 2.32,
/// 4.6.4). Private to the io layer.
enum class Orientation {
  kUpright = 1,
  kMirrored = 2,     ///< left and right exchanged
  kHalfTurn = 3,     ///< by 180 degrees
  kFlipped = 4,      ///< top and bottom exchanged
  kTransposed = 5,   ///< rows and columns exchanged
  kQuarterTurn = 6,  ///< by 90 degrees clockwise
  kTransversed = 7,  ///< rows and columns exchanged about the other diagonal
  kCounterTurn = 8,  ///< by 90 degrees counter-clockwise
};

/// Whether width and height change places.
bool swaps_sides(Orientation orientation);

/// The upright picture.
RgbImage turned(RgbImage image, Orientation orientation);

/// In words, for a note: "turned by 90 degrees clockwise".
const char* describe(Orientation orientation);

/// A display matrix of MP4 and FFmpeg (ISO/IEC 14496-12, 6.2.2; 9 values row by row), rounded to
/// the nearest quarter turn.
struct DisplayMatrix {
  Orientation orientation = Orientation::kUpright;
  bool exact = true;  ///< false: it also turns by a part of a quarter turn, which is left out
};
DisplayMatrix read_display_matrix(const std::array<std::int32_t, 9>& matrix);

}  // namespace miniacc
