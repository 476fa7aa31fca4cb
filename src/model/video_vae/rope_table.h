#pragma once

#include <cstdint>

#include "device/device.h"
#include "model/video_vae/video_vae_config.h"

namespace miniacc::video_vae {

/// Size of a tile in latents.
struct TileShape {
  std::int64_t t = 0;
  std::int64_t h = 0;
  std::int64_t w = 0;
  [[nodiscard]] std::int64_t num_tokens() const { return t * h * w; }
};

/// Rotary tables of one tile: cos, sin [num_tokens + suffix, 3·frequencies] f32, columns ordered
/// t, h, w. Suffix tokens are not rotated.
struct RopeTable {
  Tensor cos;
  Tensor sin;
};

/// Centre of cell `index` of an axis of `size` cells in the open interval (-1, 1).
double axis_coordinate(std::int64_t index, std::int64_t size);

/// Angle = 2·pi · axis_coordinate · theta^(-k / frequencies); all tiles of one shape share a table.
/// Source: spec vae.md §2.4.
RopeTable make_rope_table(const VideoVaeConfig& config, const TileShape& tile, Device& device);

}  // namespace miniacc::video_vae
