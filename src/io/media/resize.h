#pragma once

#include <cstdint>

#include "core/image.h"

namespace miniacc {

enum class ResizeFilter {
  kLanczos,  ///< sinc(x) sinc(x / 3) on [-3, 3]
  kBicubic,  ///< Keys' cubic with a = -0.5 on [-2, 2]
};

/// `image` at width x height, the same bytes as Image.resize() of Pillow 13 on an RGB picture: the
/// filter is widened when shrinking, each axis is one pass with coefficients of 22 fractional bits,
/// each pass rounds and clamps to 8 bits. A size that is the picture's own is a copy. Throws
/// InternalError for a size below 1, or one whose buffers no machine could hold.
RgbImage resize(const RgbImage& image, std::int64_t width, std::int64_t height,
                ResizeFilter filter);

/// The rectangle of width x height pixels with its top left corner at (x, y). Throws InternalError
/// unless it lies inside the picture and is not empty.
RgbImage crop(const RgbImage& image, std::int64_t x, std::int64_t y, std::int64_t width,
              std::int64_t height);

}  // namespace miniacc
