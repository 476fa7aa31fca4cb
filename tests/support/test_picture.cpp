#include "support/test_picture.h"

namespace miniacc::testing {

RgbImage test_picture(std::int64_t height, std::int64_t width, std::int64_t seed) {
  RgbImage image{.width = width, .height = height, .pixels = {}};
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      for (std::int64_t c = 0; c < 3; ++c) {
        const std::int64_t value = x * (7 + seed) + y * (13 + 2 * seed) + c * 29 +
                                   (x * y) / (5 + seed) + ((x / 9 + y / 7 + c) % 2) * 90;
        image.pixels.push_back(static_cast<std::uint8_t>(value % 256));
      }
    }
  }
  return image;
}

}  // namespace miniacc::testing
