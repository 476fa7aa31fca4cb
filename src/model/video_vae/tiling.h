#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace miniacc::video_vae {

/// Tiles of one image axis, in pixels. The tile size is part of the model (rotary coordinates are
/// relative to the tile), so it never depends on memory.
struct AxisTiles {
  std::int64_t length = 0;             ///< of the axis
  std::int64_t tile = 0;               ///< of every tile: min(length, tile size)
  std::vector<std::int64_t> starts;    ///< ascending; the last tile ends at `length`
  std::vector<std::int64_t> overlaps;  ///< overlaps[k] of tiles k and k + 1

  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(starts.size()); }
};

/// The fewest tiles of `tile_size` whose overlaps are all at least `overlap_min`; what is left over
/// is added to the overlaps, `step` pixels at a time, round robin from the left.
/// `length`, `tile_size` and `overlap_min` are multiples of `step`; 0 <= overlap_min < tile_size.
/// Source: spec vae.md §2.7.
AxisTiles split_axis(std::int64_t length, std::int64_t tile_size, std::int64_t overlap_min,
                     std::int64_t step);

/// Which tiles a pixel of an axis shows: `tile`, the last one that starts at or before it, with
/// `weight`, and inside the overlap with its predecessor also `tile - 1` with `previous_weight`.
struct PixelOwner {
  std::int64_t tile = 0;
  float weight = 1.0F;           ///< k / overlap, k counted from the tile's start
  float previous_weight = 0.0F;  ///< 1 - k / overlap
};

/// One PixelOwner a pixel. Source: spec vae.md §2.7, closed form.
std::vector<PixelOwner> pixel_owners(const AxisTiles& axis);

enum class BlendMode {
  /// Every tile fades with its undisturbed neighbours, above first, then left: where four tiles
  /// meet, the diagonal one does not contribute. The reference's picture.
  kRawNeighbours,
  /// Product of the two axes' weights, as ComfyUI blends.
  kSeparable,
};

/// Share of tile (row, column) in each of its pixels, [tile, tile] in row-major order, 0 where it
/// does not show. `rows` and `columns` are pixel_owners of the two axes.
std::vector<float> tile_weights(const AxisTiles& vertical, const AxisTiles& horizontal,
                                const std::vector<PixelOwner>& rows,
                                const std::vector<PixelOwner>& columns, std::int64_t row,
                                std::int64_t column, BlendMode mode);

/// Adds one tile's share to a canvas of zeros; after all tiles the canvas is the stitched picture.
///   canvas  [planes, height, width] f32, contiguous
///   pixels  [planes, tile_height, tile_width] f32, contiguous: raw decoder output of tile
///           (row, column)
///   rows, columns  pixel_owners of the two axes
/// Contributions add in the order of the calls: a fixed order gives a reproducible picture.
void add_tile(TensorView canvas, ConstTensorView pixels, const AxisTiles& vertical,
              const AxisTiles& horizontal, const std::vector<PixelOwner>& rows,
              const std::vector<PixelOwner>& columns, std::int64_t row, std::int64_t column,
              BlendMode mode);

}  // namespace miniacc::video_vae
