#pragma once

#include <cstdint>

#include "io/media/picture_reader.h"
#include "io/media/still_picture.h"

namespace miniacc {

/// Decodes a parsed picture and turns it upright. Messages lack the path. Private to the io layer.
[[nodiscard]] Result<Picture> decode_still(const StillPicture& still,
                                           const PictureOptions& options);

/// kInvalidInput, with both numbers, for a picture larger than `max_pixels`.
[[nodiscard]] Status check_pixels(std::int64_t width, std::int64_t height, std::int64_t max_pixels);

}  // namespace miniacc
