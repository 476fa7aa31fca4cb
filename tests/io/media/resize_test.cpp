#include "io/media/resize.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "core/error.h"
#include "support/golden.h"

namespace miniacc {
namespace {

struct Filter {
  const char* name;
  ResizeFilter filter;
};
constexpr Filter kFilters[] = {{"lanczos", ResizeFilter::kLanczos},
                               {"bicubic", ResizeFilter::kBicubic}};

struct Size {
  std::int64_t width;
  std::int64_t height;
};

std::string text(Size size) {
  return std::to_string(size.width) + "x" + std::to_string(size.height);
}

/// The picture of tools/reference/resize.py that is not stored.
RgbImage formula_picture() {
  RgbImage image{800, 450, {}};
  for (std::int64_t y = 0; y < image.height; ++y) {
    for (std::int64_t x = 0; x < image.width; ++x) {
      for (std::int64_t channel = 0; channel < 3; ++channel) {
        image.pixels.push_back(static_cast<std::uint8_t>(
            (x * x * 7 + y * y * 13 + x * y * 3 + channel * 85) / 16 % 256));
      }
    }
  }
  return image;
}

TEST(Resize, EqualsPillowBitForBit) {
  const testing::Golden golden("golden/resize.safetensors");
  const std::vector<std::pair<Size, std::vector<Size>>> cases = {
      {{37, 23},
       {{37, 23},
        {64, 23},
        {37, 9},
        {74, 46},
        {11, 7},
        {32, 64},
        {1, 1},
        {36, 22},
        {38, 24},
        {200, 3}}},
      {{16, 16}, {{32, 32}, {24, 8}, {5, 40}}},
      {{1, 64}, {{1, 10}, {3, 96}, {32, 32}}},
      {{64, 1}, {{10, 1}, {96, 3}, {32, 32}}},
      {{1, 1}, {{4, 5}}}};
  const char* names[] = {"noise_37x23", "edges_16x16", "column_1x64", "row_64x1", "pixel_1x1"};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::string name = names[i];
    const auto& [from, sizes] = cases[i];
    const RgbImage source{from.width, from.height, golden.bytes(name + ".source")};
    for (const Filter& filter : kFilters) {
      for (const Size to : sizes) {
        const RgbImage out = resize(source, to.width, to.height, filter.filter);
        const std::string key = name + "." + filter.name + "." + text(to);
        EXPECT_EQ(out.width, to.width);
        EXPECT_EQ(out.height, to.height);
        EXPECT_EQ(out.pixels, golden.bytes(key)) << key;
      }
    }
  }
}

TEST(Resize, EqualsPillowAtTheModelsSizes) {
  const testing::Golden golden("golden/resize.safetensors");
  const RgbImage source = formula_picture();
  for (const Filter& filter : kFilters) {
    for (const Size to : {Size{96, 64}, Size{1344, 768}}) {
      const std::string key = std::string("formula.") + filter.name + "." + text(to) + ".rows";
      const std::vector<std::uint8_t> wanted = golden.bytes(key);
      const RgbImage out = resize(source, to.width, to.height, filter.filter);
      const std::int64_t row_bytes = to.width * 3;
      std::vector<std::uint8_t> rows;
      for (std::int64_t y = 0; y < to.height; y += 61) {
        rows.insert(rows.end(), out.pixels.begin() + y * row_bytes,
                    out.pixels.begin() + (y + 1) * row_bytes);
      }
      EXPECT_EQ(rows, wanted) << key;
    }
  }
}

TEST(Resize, RefusesBrokenContracts) {
  const RgbImage image{2, 2, std::vector<std::uint8_t>(12)};
  EXPECT_THROW(resize(image, 0, 2, ResizeFilter::kLanczos), InternalError);
  EXPECT_THROW(resize(image, 2, -1, ResizeFilter::kLanczos), InternalError);
  EXPECT_THROW(resize(image, std::int64_t{1} << 40, 1, ResizeFilter::kLanczos), InternalError);
  EXPECT_THROW(resize({2, 3, image.pixels}, 2, 2, ResizeFilter::kBicubic), InternalError);
  EXPECT_THROW(resize({}, 2, 2, ResizeFilter::kBicubic), InternalError);
}

TEST(Crop, TakesTheRectangle) {
  RgbImage image{4, 3, {}};
  for (std::uint8_t i = 0; i < 36; ++i) {
    image.pixels.push_back(i);
  }
  const RgbImage out = crop(image, 1, 1, 2, 2);
  EXPECT_EQ(out.width, 2);
  EXPECT_EQ(out.height, 2);
  EXPECT_EQ(out.pixels,
            (std::vector<std::uint8_t>{15, 16, 17, 18, 19, 20, 27, 28, 29, 30, 31, 32}));
  EXPECT_EQ(crop(image, 0, 0, 4, 3).pixels, image.pixels);
  for (const auto& [x, y, width, height] : {std::array<std::int64_t, 4>{-1, 0, 1, 1},
                                            {0, 0, 5, 1},
                                            {3, 2, 2, 1},
                                            {0, 3, 1, 1},
                                            {0, 0, 0, 1}}) {
    EXPECT_THROW(crop(image, x, y, width, height), InternalError);
  }
}

}  // namespace
}  // namespace miniacc
