#include "model/video_vae/pixels.h"

#include <algorithm>
#include <array>

#include "kernels/frames.h"

namespace miniacc::video_vae {
namespace {

constexpr std::array<float, 3> kImageNetMean = {0.485F, 0.456F, 0.406F};
constexpr std::array<float, 3> kImageNetStd = {0.229F, 0.224F, 0.225F};

}  // namespace

void to_unit_range(OpContext& ctx, TensorView pixels) {
  ops::scale_to_unit(ctx, pixels, {.scale = kImageNetStd, .offset = kImageNetMean});
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

}  // namespace miniacc::video_vae
