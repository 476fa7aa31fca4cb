#include "runtime/vision_resize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"

namespace miniacc {
namespace {

constexpr std::int64_t kChannels = 3;

/// Source pixels of one target pixel along an axis.
struct Taps {
  std::int64_t first = 0;
  std::vector<std::int32_t> weights;  ///< times 2^fraction_bits
};

struct Axis {
  std::vector<Taps> taps;  ///< a target pixel
  int fraction_bits = 0;
};

double keys_cubic(double x) {
  constexpr double kA = -0.5;
  x = std::fabs(x);
  if (x < 1.0) {
    return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1.0;
  }
  return x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * kA : 0.0;
}

/// The most fraction bits, up to 22, with which the largest weight still fits 16 bits.
int choose_fraction_bits(double largest) {
  int bits = 0;
  while (bits < 22 && std::llround(largest * static_cast<double>(1 << (bits + 1))) < 32768) {
    ++bits;
  }
  return bits;
}

Axis make_axis(std::int64_t source, std::int64_t target) {
  const double scale = static_cast<double>(source) / static_cast<double>(target);
  const double stretch = std::max(scale, 1.0);
  const double support = 2.0 * stretch;
  Axis axis;
  std::vector<std::vector<double>> weights;
  double largest = 0.0;
  for (std::int64_t i = 0; i < target; ++i) {
    const double center = scale * (static_cast<double>(i) + 0.5);
    const std::int64_t first = std::max<std::int64_t>(std::llround(center - support), 0);
    const std::int64_t end = std::min<std::int64_t>(std::llround(center + support), source);
    std::vector<double> row;
    double sum = 0.0;
    for (std::int64_t j = first; j < end; ++j) {
      row.push_back(keys_cubic((static_cast<double>(j) - center + 0.5) / stretch));
      sum += row.back();
    }
    for (double& weight : row) {
      weight /= sum;
      largest = std::max(largest, weight);
    }
    axis.taps.push_back({.first = first, .weights = {}});
    weights.push_back(std::move(row));
  }
  axis.fraction_bits = choose_fraction_bits(largest);
  const auto one = static_cast<double>(1 << axis.fraction_bits);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    for (const double weight : weights[i]) {
      axis.taps[i].weights.push_back(static_cast<std::int32_t>(std::lround(weight * one)));
    }
  }
  return axis;
}

std::uint8_t to_byte(std::int32_t sum, int fraction_bits) {
  return static_cast<std::uint8_t>(std::clamp(sum >> fraction_bits, 0, 255));
}

RgbImage resize_rows(const RgbImage& image, std::int64_t width) {
  const Axis axis = make_axis(image.width, width);
  RgbImage out{.width = width, .height = image.height, .pixels = {}};
  out.pixels.resize(static_cast<std::size_t>(kChannels * width * image.height));
  auto* target = out.pixels.data();
  for (std::int64_t y = 0; y < image.height; ++y) {
    const std::uint8_t* row = image.pixels.data() + y * image.width * kChannels;
    for (const Taps& taps : axis.taps) {
      for (std::int64_t c = 0; c < kChannels; ++c) {
        const std::uint8_t* source = row + taps.first * kChannels + c;
        std::int32_t sum = 1 << (axis.fraction_bits - 1);
        for (const std::int32_t weight : taps.weights) {
          sum += weight * *source;
          source += kChannels;
        }
        *target++ = to_byte(sum, axis.fraction_bits);
      }
    }
  }
  return out;
}

RgbImage resize_columns(const RgbImage& image, std::int64_t height) {
  const Axis axis = make_axis(image.height, height);
  const std::int64_t row_size = image.width * kChannels;
  RgbImage out{.width = image.width, .height = height, .pixels = {}};
  out.pixels.reserve(static_cast<std::size_t>(row_size * height));
  std::vector<std::int32_t> sums(static_cast<std::size_t>(row_size));
  for (const Taps& taps : axis.taps) {
    std::ranges::fill(sums, 1 << (axis.fraction_bits - 1));
    const std::uint8_t* source = image.pixels.data() + taps.first * row_size;
    for (const std::int32_t weight : taps.weights) {
      for (std::int32_t& sum : sums) {
        sum += weight * *source++;
      }
    }
    for (const std::int32_t sum : sums) {
      out.pixels.push_back(to_byte(sum, axis.fraction_bits));
    }
  }
  return out;
}

}  // namespace

RgbImage resize_for_vision(const RgbImage& image, std::int64_t width, std::int64_t height) {
  MINIACC_REQUIRE(width > 0 && height > 0 && image.width > 0 && image.height > 0,
                  "resize_for_vision: sizes are at least 1");
  MINIACC_REQUIRE(
      static_cast<std::int64_t>(image.pixels.size()) == kChannels * image.width * image.height,
      "resize_for_vision: three bytes a pixel");
  const RgbImage* source = &image;
  RgbImage wide;
  if (width != image.width) {
    wide = resize_rows(image, width);
    source = &wide;
  }
  return height != image.height ? resize_columns(*source, height) : *source;
}

}  // namespace miniacc
