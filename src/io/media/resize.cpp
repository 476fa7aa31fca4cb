#include "io/media/resize.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

#include "core/error.h"

namespace miniacc {
namespace {

constexpr std::int64_t kChannels = 3;
// Pillow's: 8 bits of a pixel, 2 bits of headroom for the filters' overshoot, 32 in all.
constexpr int kFractionBits = 22;
// Far beyond every picture that a reader gives or a model takes.
constexpr std::int64_t kMaxSide = 1 << 20;
constexpr std::int64_t kMaxPixels = std::int64_t{1} << 31;

double sinc(double x) {
  if (x == 0.0) {
    return 1.0;
  }
  const double angle = x * std::numbers::pi;
  return std::sin(angle) / angle;
}

double lanczos(double x) { return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3.0) : 0.0; }

double bicubic(double x) {
  constexpr double kA = -0.5;
  const double d = std::abs(x);
  if (d < 1.0) {
    return ((kA + 2.0) * d - (kA + 3.0)) * d * d + 1.0;
  }
  if (d < 2.0) {
    return (((d - 5.0) * d + 8.0) * d - 4.0) * kA;
  }
  return 0.0;
}

/// Where each pixel of the result comes from along one axis.
struct Weights {
  std::int64_t taps = 0;             ///< room for a pixel in `values`
  std::vector<std::int64_t> first;   ///< [size] first source pixel
  std::vector<std::int64_t> count;   ///< [size] number of source pixels
  std::vector<std::int32_t> values;  ///< [size, taps] fixed point
};

Weights make_weights(std::int64_t from, std::int64_t to, ResizeFilter filter) {
  const auto weigh = filter == ResizeFilter::kLanczos ? lanczos : bicubic;
  const double radius = filter == ResizeFilter::kLanczos ? 3.0 : 2.0;
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double stretch = std::max(scale, 1.0);
  const double support = radius * stretch;
  Weights weights;
  // A window is cut at the picture's sides, so it never has more taps than the picture has pixels.
  weights.taps = std::min(2 * static_cast<std::int64_t>(std::ceil(support)) + 1, from);
  weights.first.resize(static_cast<std::size_t>(to));
  weights.count.resize(static_cast<std::size_t>(to));
  weights.values.resize(static_cast<std::size_t>(to * weights.taps));
  std::vector<double> row(static_cast<std::size_t>(weights.taps));
  for (std::int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    // Truncation toward zero, then the clamp: the order matters left of the first pixel.
    const double left = centre - support;
    const double right = centre + support;
    constexpr double kHalfPixel = 0.5;
    const auto begin =
        std::max<std::int64_t>(static_cast<std::int64_t>(std::trunc(left + kHalfPixel)), 0);
    const auto end =
        std::min<std::int64_t>(static_cast<std::int64_t>(std::trunc(right + kHalfPixel)), from);
    const std::int64_t count = end - begin;
    double sum = 0.0;
    for (std::int64_t tap = 0; tap < count; ++tap) {
      const double weight =
          weigh((static_cast<double>(tap + begin) - centre + 0.5) * (1.0 / stretch));
      row[static_cast<std::size_t>(tap)] = weight;
      sum += weight;
    }
    std::int32_t* values = weights.values.data() + i * weights.taps;
    for (std::int64_t tap = 0; tap < count; ++tap) {
      double weight = row[static_cast<std::size_t>(tap)];
      if (sum != 0.0) {
        weight /= sum;
      }
      values[tap] =
          static_cast<std::int32_t>(weight * (1 << kFractionBits) + (weight < 0.0 ? -0.5 : 0.5));
    }
    weights.first[static_cast<std::size_t>(i)] = begin;
    weights.count[static_cast<std::size_t>(i)] = count;
  }
  return weights;
}

std::uint8_t to_byte(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kFractionBits, 0, 255));
}

constexpr std::int32_t kHalf = 1 << (kFractionBits - 1);

/// Each row of `source` [rows, from, 3] to [rows, to, 3].
std::vector<std::uint8_t> resize_rows(const std::uint8_t* source, std::int64_t rows,
                                      std::int64_t from, std::int64_t to, const Weights& weights) {
  std::vector<std::uint8_t> result(static_cast<std::size_t>(rows * to * kChannels));
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::uint8_t* in = source + row * from * kChannels;
    std::uint8_t* out = result.data() + row * to * kChannels;
    for (std::int64_t x = 0; x < to; ++x) {
      const auto at = static_cast<std::size_t>(x);
      const std::uint8_t* pixel = in + weights.first[at] * kChannels;
      const std::int32_t* values = weights.values.data() + x * weights.taps;
      std::int32_t red = kHalf;
      std::int32_t green = kHalf;
      std::int32_t blue = kHalf;
      for (std::int64_t tap = 0; tap < weights.count[at]; ++tap, pixel += kChannels) {
        red += pixel[0] * values[tap];
        green += pixel[1] * values[tap];
        blue += pixel[2] * values[tap];
      }
      *out++ = to_byte(red);
      *out++ = to_byte(green);
      *out++ = to_byte(blue);
    }
  }
  return result;
}

/// Each column of `source` [from, row_bytes] to [to, row_bytes].
std::vector<std::uint8_t> resize_columns(const std::uint8_t* source, std::int64_t row_bytes,
                                         std::int64_t to, const Weights& weights) {
  std::vector<std::uint8_t> result(static_cast<std::size_t>(to * row_bytes));
  std::vector<std::int32_t> sums(static_cast<std::size_t>(row_bytes));
  for (std::int64_t y = 0; y < to; ++y) {
    const auto at = static_cast<std::size_t>(y);
    std::fill(sums.begin(), sums.end(), kHalf);
    for (std::int64_t tap = 0; tap < weights.count[at]; ++tap) {
      const std::uint8_t* in = source + (weights.first[at] + tap) * row_bytes;
      const std::int32_t value = weights.values[static_cast<std::size_t>(y * weights.taps + tap)];
      for (std::int64_t i = 0; i < row_bytes; ++i) {
        sums[static_cast<std::size_t>(i)] += in[i] * value;
      }
    }
    std::transform(sums.begin(), sums.end(), result.begin() + y * row_bytes, to_byte);
  }
  return result;
}

}  // namespace

RgbImage resize(const RgbImage& image, std::int64_t width, std::int64_t height,
                ResizeFilter filter) {
  MINIACC_REQUIRE(
      image.width > 0 && image.height > 0 &&
          static_cast<std::int64_t>(image.pixels.size()) == image.width * image.height * kChannels,
      "resize: needs a picture of [height, width, 3]");
  MINIACC_REQUIRE(width > 0 && height > 0, "resize: wants a size of at least 1x1");
  MINIACC_REQUIRE(width <= kMaxSide && height <= kMaxSide && width * height <= kMaxPixels &&
                      width * image.height <= kMaxPixels && image.width * height <= kMaxPixels,
                  "resize: the result is too large");
  const Weights columns = make_weights(image.width, width, filter);
  const Weights rows = make_weights(image.height, height, filter);
  RgbImage result = image;
  // A pass that changes nothing is left out, it would round nothing either.
  const auto resize_width = [&] {
    if (width != result.width) {
      result.pixels =
          resize_rows(result.pixels.data(), result.height, result.width, width, columns);
      result.width = width;
    }
  };
  const auto resize_height = [&] {
    if (height != result.height) {
      result.pixels = resize_columns(result.pixels.data(), result.width * kChannels, height, rows);
      result.height = height;
    }
  };
  // Pillow 13 begins with the height where that saves more than the width does; older ones begin
  // with the width always. Their results differ by the rounding between the passes.
  const bool height_first =
      height < image.height && image.height - height > 2 * (image.width - width);
  if (height_first) {
    resize_height();
  }
  resize_width();
  resize_height();
  return result;
}

RgbImage crop(const RgbImage& image, std::int64_t x, std::int64_t y, std::int64_t width,
              std::int64_t height) {
  MINIACC_REQUIRE(x >= 0 && y >= 0 && width > 0 && height > 0 && x <= image.width - width &&
                      y <= image.height - height,
                  "crop: the rectangle must lie inside the picture");
  RgbImage result{width, height, {}};
  result.pixels.reserve(static_cast<std::size_t>(width * height * kChannels));
  for (std::int64_t row = y; row < y + height; ++row) {
    const auto begin = image.pixels.begin() + (row * image.width + x) * kChannels;
    result.pixels.insert(result.pixels.end(), begin, begin + width * kChannels);
  }
  return result;
}

}  // namespace miniacc
