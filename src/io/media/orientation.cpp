#include "io/media/orientation.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "core/error.h"

namespace miniacc {

bool swaps_sides(Orientation orientation) {
  return static_cast<int>(orientation) >= static_cast<int>(Orientation::kTransposed);
}

RgbImage turned(RgbImage image, Orientation orientation) {
  if (orientation == Orientation::kUpright) {
    return image;
  }
  const std::int64_t width = image.width;
  const std::int64_t height = image.height;
  MINIACC_REQUIRE(static_cast<std::int64_t>(image.pixels.size()) == width * height * 3,
                  "turned: needs a picture of [height, width, 3]");
  // The source pixel of (x, y) is origin + x * step_x + y * step_y, in pixels.
  const std::int64_t last_column = width - 1;
  const std::int64_t last_row = (height - 1) * width;
  std::int64_t origin = 0;
  std::int64_t step_x = 1;
  std::int64_t step_y = width;
  switch (orientation) {
    case Orientation::kUpright:
      break;
    case Orientation::kMirrored:
      origin = last_column;
      step_x = -1;
      break;
    case Orientation::kHalfTurn:
      origin = last_column + last_row;
      step_x = -1;
      step_y = -width;
      break;
    case Orientation::kFlipped:
      origin = last_row;
      step_y = -width;
      break;
    case Orientation::kTransposed:
      step_x = width;
      step_y = 1;
      break;
    case Orientation::kQuarterTurn:
      origin = last_row;
      step_x = -width;
      step_y = 1;
      break;
    case Orientation::kTransversed:
      origin = last_column + last_row;
      step_x = -width;
      step_y = -1;
      break;
    case Orientation::kCounterTurn:
      origin = last_column;
      step_x = width;
      step_y = -1;
      break;
  }
  RgbImage result{width, height, std::vector<std::uint8_t>(image.pixels.size())};
  if (swaps_sides(orientation)) {
    std::swap(result.width, result.height);
  }
  std::uint8_t* out = result.pixels.data();
  for (std::int64_t y = 0; y < result.height; ++y) {
    const std::uint8_t* in = image.pixels.data() + (origin + y * step_y) * 3;
    for (std::int64_t x = 0; x < result.width; ++x, out += 3) {
      std::memcpy(out, in + x * step_x * 3, 3);
    }
  }
  return result;
}

const char* describe(Orientation orientation) {
  switch (orientation) {
    case Orientation::kUpright:
      return "upright";
    case Orientation::kMirrored:
      return "mirrored";
    case Orientation::kHalfTurn:
      return "turned by 180 degrees";
    case Orientation::kFlipped:
      return "flipped upside down";
    case Orientation::kTransposed:
      return "turned by 90 degrees clockwise and mirrored";
    case Orientation::kQuarterTurn:
      return "turned by 90 degrees clockwise";
    case Orientation::kTransversed:
      return "turned by 90 degrees counter-clockwise and mirrored";
    case Orientation::kCounterTurn:
      return "turned by 90 degrees counter-clockwise";
  }
  return "";
}

DisplayMatrix read_display_matrix(const std::array<std::int32_t, 9>& matrix) {
  // A stored point (p, q) is shown at (a p + c q, b p + d q).
  const std::int64_t a = matrix[0];
  const std::int64_t b = matrix[1];
  const std::int64_t c = matrix[3];
  const std::int64_t d = matrix[4];
  DisplayMatrix result;
  const auto small = [](std::int64_t value, std::int64_t beside) {
    return std::abs(value) * 100 <= std::abs(beside);
  };
  if (std::abs(a) + std::abs(d) >= std::abs(b) + std::abs(c)) {
    result.orientation = a >= 0 ? (d >= 0 ? Orientation::kUpright : Orientation::kFlipped)
                                : (d >= 0 ? Orientation::kMirrored : Orientation::kHalfTurn);
    result.exact = small(b, a) && small(c, d);
  } else {
    result.orientation = b >= 0 ? (c >= 0 ? Orientation::kTransposed : Orientation::kQuarterTurn)
                                : (c >= 0 ? Orientation::kCounterTurn : Orientation::kTransversed);
    result.exact = small(a, b) && small(d, c);
  }
  return result;
}

}  // namespace miniacc
