#include "measure/pictures.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace miniacc::measure {

int histogram_median(const std::array<std::int64_t, 256>& histogram) {
  std::int64_t total = 0;
  for (const std::int64_t count : histogram) {
    total += count;
  }
  std::int64_t below = 0;
  for (int value = 0; value < 256; ++value) {
    below += histogram[static_cast<std::size_t>(value)];
    if (2 * below > total) {
      return value;
    }
  }
  return 0;
}

Pictures reduce(const Clip& clip) {
  const int factor = std::max(1, std::min(clip.width, clip.height) / 128);
  Pictures pictures;
  pictures.width = clip.width / factor;
  pictures.height = clip.height / factor;
  pictures.num_frames = clip.num_frames;
  if (factor == 1) {
    pictures.rgb = clip.frames;
    return pictures;
  }
  pictures.rgb.reserve(static_cast<std::size_t>(clip.num_frames) *
                       static_cast<std::size_t>(pictures.width) *
                       static_cast<std::size_t>(pictures.height) * 3);
  const int area = factor * factor;
  for (std::int64_t frame = 0; frame < clip.num_frames; ++frame) {
    for (int y = 0; y < pictures.height; ++y) {
      for (int x = 0; x < pictures.width; ++x) {
        std::array<int, 3> sum = {};
        for (int row = 0; row < factor; ++row) {
          const std::uint8_t* source =
              clip.frames.data() +
              ((frame * clip.height + std::int64_t{y} * factor + row) * clip.width +
               std::int64_t{x} * factor) *
                  3;
          for (int i = 0; i < 3 * factor; ++i) {
            sum[static_cast<std::size_t>(i % 3)] += source[i];
          }
        }
        for (const int value : sum) {
          pictures.rgb.push_back(static_cast<std::uint8_t>((value + area / 2) / area));
        }
      }
    }
  }
  return pictures;
}

bool stands_out(const std::uint8_t* pixel, const std::array<std::uint8_t, 3>& background) {
  int largest = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    largest = std::max(largest, std::abs(pixel[i] - background[i]));
  }
  return largest >= kContrastLevels;
}

Background estimate_background(const Pictures& pictures) {
  // A twelfth of the width at each side: a subject that keeps to the middle never covers it.
  const int border = std::max(1, static_cast<int>(std::lround(pictures.width / 12.0)));
  Background background;
  std::int64_t outliers = 0;
  std::int64_t total = 0;
  const auto for_border = [&](int y, auto&& visit) {
    for (std::int64_t frame = 0; frame < pictures.num_frames; ++frame) {
      for (int i = 0; i < std::min(border, pictures.width); ++i) {
        visit(pictures.pixel(frame, i, y));
        visit(pictures.pixel(frame, pictures.width - 1 - i, y));
      }
    }
  };
  for (int y = 0; y < pictures.height; ++y) {
    std::array<std::array<std::int64_t, 256>, 3> histograms = {};
    for_border(y, [&](const std::uint8_t* pixel) {
      for (std::size_t i = 0; i < 3; ++i) {
        ++histograms[i][pixel[i]];
      }
    });
    std::array<std::uint8_t, 3> color = {};
    for (std::size_t i = 0; i < 3; ++i) {
      color[i] = static_cast<std::uint8_t>(histogram_median(histograms[i]));
    }
    for_border(y, [&](const std::uint8_t* pixel) {
      outliers += stands_out(pixel, color) ? 1 : 0;
      ++total;
    });
    background.rows.push_back(color);
  }
  background.unexplained =
      total == 0 ? 0.0 : static_cast<double>(outliers) / static_cast<double>(total);
  return background;
}

}  // namespace miniacc::measure
