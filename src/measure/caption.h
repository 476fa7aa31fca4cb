#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "measure/measured.h"
#include "measure/vocabulary.h"

namespace miniacc::measure {

/// What a caption asks for, as far as the grammar of h3-tiny's captions (tools/train_tiny,
/// captions.py) can say it. An attribute that is not named, or named twice differently, is unknown
/// with the reason. Indices count into the tables of vocabulary.h.
struct CaptionAttributes {
  Measured<std::size_t> color;
  Measured<ShapeKind> shape;
  Measured<std::size_t> size;
  Measured<Motion> motion;
  Measured<std::size_t> speed;
  Measured<std::size_t> pitch;
  /// Top and bottom of the background; equal when it is plain.
  Measured<std::pair<std::size_t, std::size_t>> background;
  bool names_second_shape = false;  ///< a clause "a COLOUR SHAPE rests in the upper SIDE corner"
};

/// Reads any text; what it does not understand it leaves unknown. Upper case counts as lower case.
[[nodiscard]] CaptionAttributes parse_caption(std::string_view caption);

}  // namespace miniacc::measure
