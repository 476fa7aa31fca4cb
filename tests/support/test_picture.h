#pragma once

#include <cstdint>

#include "core/image.h"

namespace miniacc::testing {

/// The picture that tools/reference/vision_tower.py makes of the same numbers: edges, ramps and
/// texture out of whole-number arithmetic.
RgbImage test_picture(std::int64_t height, std::int64_t width, std::int64_t seed);

}  // namespace miniacc::testing
