#pragma once

#include <cstdint>

#include "core/image.h"

namespace miniacc {

/// `image` at width × height as the reference's vision processor resizes it: bicubic (a = -0.5),
/// widened when shrinking, rows then columns, each pass rounded to 8 bits. The same bytes as
/// torchvision's antialiased resize of 8-bit pictures on a CPU, which computes with 16-bit weights;
/// Pillow's resize has more fraction bits and differs by one level here and there. A size that is
/// the picture's own is a copy. Throws InternalError for sizes below 1.
/// Source: spec text_encoder.md §6.2; PyTorch's documented `interpolate(mode="bicubic",
/// antialias=True)`.
[[nodiscard]] RgbImage resize_for_vision(const RgbImage& image, std::int64_t width,
                                         std::int64_t height);

}  // namespace miniacc
