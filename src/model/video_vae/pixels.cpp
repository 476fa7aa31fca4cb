#include "model/video_vae/pixels.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace miniacc::video_vae {
namespace {

constexpr std::array<float, 3> kImageNetMean = {0.485F, 0.456F, 0.406F};
constexpr std::array<float, 3> kImageNetStd = {0.229F, 0.224F, 0.225F};

bool is_rgb_planes(const ConstTensorView& pixels) {
  return pixels.shape.rank() == 4 && pixels.dim(1) == 3 && pixels.is_contiguous();
}

}  // namespace

void to_unit_range(TensorView pixels) {
  MINIACC_REQUIRE(is_rgb_planes(pixels), "to_unit_range: pixels are [n, 3, H, W]");
  const std::int64_t area = pixels.dim(2) * pixels.dim(3);
  for (std::int64_t plane = 0; plane < pixels.dim(0) * 3; ++plane) {
    const auto channel = static_cast<std::size_t>(plane % 3);
    float* values = pixels.f32() + plane * area;
    for (std::int64_t i = 0; i < area; ++i) {
      values[i] =
          std::clamp(values[i] * kImageNetStd[channel] + kImageNetMean[channel], 0.0F, 1.0F);
    }
  }
}

void to_rgb8(TensorView rgb, ConstTensorView pixels) {
  MINIACC_REQUIRE(is_rgb_planes(pixels) && rgb.dtype == DType::kU8 && rgb.is_contiguous() &&
                      rgb.shape == Shape({pixels.dim(0), pixels.dim(2), pixels.dim(3), 3}),
                  "to_rgb8: rgb [n, H, W, 3] u8 from pixels [n, 3, H, W]");
  const std::int64_t area = pixels.dim(2) * pixels.dim(3);
  auto* bytes = rgb.as<std::uint8_t>();
  for (std::int64_t plane = 0; plane < pixels.dim(0) * 3; ++plane) {
    const float* source = pixels.f32() + plane * area;
    std::uint8_t* target = bytes + plane / 3 * area * 3 + plane % 3;
    for (std::int64_t i = 0; i < area; ++i) {
      target[3 * i] = static_cast<std::uint8_t>(std::nearbyint(source[i] * 255.0F));
    }
  }
}

void gather_pixels(TensorView pixels, const RgbClip& frames, std::int64_t first_frame,
                   const TileCorner& corner) {
  MINIACC_REQUIRE(pixels.shape.rank() == 4 && pixels.dim(3) == 3 && pixels.is_contiguous(),
                  "gather_pixels: pixels are [n, tile_height, tile_width, 3]");
  MINIACC_REQUIRE(corner.top >= 0 && corner.top + pixels.dim(1) <= frames.height &&
                      corner.left >= 0 && corner.left + pixels.dim(2) <= frames.width &&
                      first_frame >= 0 && frames.num_frames > 0,
                  "gather_pixels: the tile lies within the picture");
  const std::int64_t row_values = pixels.dim(2) * 3;
  float* target = pixels.f32();
  for (std::int64_t i = 0; i < pixels.dim(0); ++i) {
    const std::int64_t frame = std::min(first_frame + i, frames.num_frames - 1);
    for (std::int64_t y = 0; y < pixels.dim(1); ++y) {
      const std::int64_t row = frame * frames.height + corner.top + y;
      const std::uint8_t* source = frames.pixels.data() + (row * frames.width + corner.left) * 3;
      for (std::int64_t x = 0; x < row_values; ++x, ++target) {
        const auto channel = static_cast<std::size_t>(x % 3);
        *target = (static_cast<float>(source[x]) / 255.0F - kImageNetMean[channel]) /
                  kImageNetStd[channel];
      }
    }
  }
}

void cross_fade(TensorView head, ConstTensorView previous) {
  MINIACC_REQUIRE(head.shape == previous.shape && head.is_contiguous() && previous.is_contiguous(),
                  "cross_fade: head and previous are contiguous and of one shape");
  const std::int64_t frames = head.dim(0);
  const std::int64_t size = frames == 0 ? 0 : head.num_elements() / frames;
  for (std::int64_t k = 0; k < frames; ++k) {
    const double ramp = static_cast<double>(k) / static_cast<double>(frames);
    const auto weight = static_cast<float>(ramp);
    const auto previous_weight = static_cast<float>(1.0 - ramp);
    float* target = head.f32() + k * size;
    const float* old = previous.f32() + k * size;
    for (std::int64_t i = 0; i < size; ++i) {
      target[i] = old[i] * previous_weight + target[i] * weight;
    }
  }
}

}  // namespace miniacc::video_vae
