#pragma once

#include <cstdint>

namespace miniacc {

/// Patches in one grid that the vision tower attends within: one picture, or two frames of a video.
/// Both sides are even, because 2×2 patches become one token.
struct VisionGrid {
  std::int64_t height = 0;  ///< patches
  std::int64_t width = 0;

  [[nodiscard]] std::int64_t num_patches() const { return height * width; }
  /// Rows that the grid takes in the presentation, and their raster.
  [[nodiscard]] std::int64_t num_tokens() const { return num_patches() / 4; }
  [[nodiscard]] std::int64_t token_rows() const { return height / 2; }
  [[nodiscard]] std::int64_t token_columns() const { return width / 2; }

  friend bool operator==(const VisionGrid&, const VisionGrid&) = default;
};

}  // namespace miniacc
