#include "model/video_vae/tiling.h"

#include <algorithm>

namespace miniacc::video_vae {
namespace {

/// The share of tile `index` in a pixel of one axis.
enum class Part { kNone, kOwner, kPrevious };

Part part_of(const PixelOwner& owner, std::int64_t index) {
  if (owner.tile == index) {
    return Part::kOwner;
  }
  return owner.tile == index + 1 && owner.previous_weight > 0.0F ? Part::kPrevious : Part::kNone;
}

float axis_weight(const PixelOwner& owner, Part part) {
  return part == Part::kOwner ? owner.weight : owner.previous_weight;
}

/// Weight of a tile in one pixel of the picture, 0 where it does not show.
float tile_weight(const PixelOwner& row, Part row_part, const PixelOwner& column, Part column_part,
                  BlendMode mode) {
  if (mode == BlendMode::kRawNeighbours && column_part == Part::kPrevious) {
    // The left neighbour enters as it is: not faded with the tile above it, nor replaced by that.
    return row_part == Part::kOwner ? column.previous_weight : 0.0F;
  }
  return axis_weight(row, row_part) * axis_weight(column, column_part);
}

}  // namespace

AxisTiles split_axis(std::int64_t length, std::int64_t tile_size, std::int64_t overlap_min,
                     std::int64_t step) {
  MINIACC_REQUIRE(length > 0 && step > 0 && tile_size > overlap_min && overlap_min >= 0,
                  "split_axis: 0 < length, 0 < step, 0 <= overlap_min < tile_size");
  MINIACC_REQUIRE(length % step == 0 && tile_size % step == 0 && overlap_min % step == 0,
                  "split_axis: lengths are multiples of step");
  if (length <= tile_size) {
    return {.length = length, .tile = length, .starts = {0}, .overlaps = {}};
  }
  std::int64_t count = (length + tile_size - 1) / tile_size;
  while (tile_size * count - overlap_min * (count - 1) < length) {
    ++count;
  }
  AxisTiles axis{.length = length, .tile = tile_size, .starts = {0}, .overlaps = {}};
  axis.overlaps.assign(static_cast<std::size_t>(count - 1), overlap_min);
  const std::int64_t slack = tile_size * count - overlap_min * (count - 1) - length;
  for (std::int64_t i = 0; i < slack / step; ++i) {
    axis.overlaps[static_cast<std::size_t>(i % (count - 1))] += step;
  }
  for (const std::int64_t overlap : axis.overlaps) {
    axis.starts.push_back(axis.starts.back() + tile_size - overlap);
  }
  MINIACC_REQUIRE(axis.starts.back() + tile_size == length, "split_axis: last tile ends at length");
  return axis;
}

std::vector<PixelOwner> pixel_owners(const AxisTiles& axis) {
  std::vector<PixelOwner> owners(static_cast<std::size_t>(axis.length));
  std::size_t tile = 0;
  for (std::int64_t x = 0; x < axis.length; ++x) {
    while (tile + 1 < axis.starts.size() && axis.starts[tile + 1] <= x) {
      ++tile;
    }
    PixelOwner& owner = owners[static_cast<std::size_t>(x)];
    owner.tile = static_cast<std::int64_t>(tile);
    const std::int64_t k = x - axis.starts[tile];
    if (tile > 0 && k < axis.overlaps[tile - 1]) {
      const double ramp = static_cast<double>(k) / static_cast<double>(axis.overlaps[tile - 1]);
      owner.weight = static_cast<float>(ramp);
      owner.previous_weight = static_cast<float>(1.0 - ramp);
    }
  }
  return owners;
}

std::vector<float> tile_weights(const AxisTiles& vertical, const AxisTiles& horizontal,
                                const std::vector<PixelOwner>& rows,
                                const std::vector<PixelOwner>& columns, std::int64_t row,
                                std::int64_t column, BlendMode mode) {
  const std::int64_t top = vertical.starts[static_cast<std::size_t>(row)];
  const std::int64_t left = horizontal.starts[static_cast<std::size_t>(column)];
  std::vector<float> weights(static_cast<std::size_t>(vertical.tile * horizontal.tile), 0.0F);
  for (std::int64_t y = 0; y < vertical.tile; ++y) {
    const PixelOwner& row_owner = rows[static_cast<std::size_t>(top + y)];
    const Part row_part = part_of(row_owner, row);
    for (std::int64_t x = 0; x < horizontal.tile && row_part != Part::kNone; ++x) {
      const PixelOwner& column_owner = columns[static_cast<std::size_t>(left + x)];
      const Part column_part = part_of(column_owner, column);
      if (column_part != Part::kNone) {
        weights[static_cast<std::size_t>(y * horizontal.tile + x)] =
            tile_weight(row_owner, row_part, column_owner, column_part, mode);
      }
    }
  }
  return weights;
}

void add_tile(TensorView canvas, ConstTensorView pixels, const AxisTiles& vertical,
              const AxisTiles& horizontal, const std::vector<PixelOwner>& rows,
              const std::vector<PixelOwner>& columns, std::int64_t row, std::int64_t column,
              BlendMode mode) {
  MINIACC_REQUIRE(canvas.shape.rank() == 3 && canvas.is_contiguous() && pixels.is_contiguous() &&
                      canvas.dim(1) == vertical.length && canvas.dim(2) == horizontal.length,
                  "add_tile: canvas is [planes, height, width]");
  MINIACC_REQUIRE(pixels.shape == Shape({canvas.dim(0), vertical.tile, horizontal.tile}),
                  "add_tile: pixels are [planes, tile_height, tile_width]");
  const std::int64_t top = vertical.starts[static_cast<std::size_t>(row)];
  const std::int64_t left = horizontal.starts[static_cast<std::size_t>(column)];
  const std::vector<float> weights =
      tile_weights(vertical, horizontal, rows, columns, row, column, mode);
  for (std::int64_t plane = 0; plane < canvas.dim(0); ++plane) {
    for (std::int64_t y = 0; y < vertical.tile; ++y) {
      const float* weight = weights.data() + y * horizontal.tile;
      float* target = canvas.f32() + (plane * vertical.length + top + y) * horizontal.length + left;
      const float* source = pixels.f32() + (plane * vertical.tile + y) * horizontal.tile;
      for (std::int64_t x = 0; x < horizontal.tile; ++x) {
        if (weight[x] != 0.0F) {
          target[x] += weight[x] * source[x];
        }
      }
    }
  }
}

}  // namespace miniacc::video_vae
