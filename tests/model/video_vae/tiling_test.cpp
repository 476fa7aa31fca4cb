#include "model/video_vae/tiling.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "device/cpu_device.h"
#include "model/support/vae_models.h"
#include "support/compare.h"
#include "support/random.h"

namespace miniacc::video_vae {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

AxisTiles released(std::int64_t length) { return split_axis(length, 256, 64, 16); }

TEST(Tiling, StartsAndOverlapsOfTheSpecsTable) {
  EXPECT_THAT(released(256).starts, ElementsAre(0));
  EXPECT_THAT(released(256).overlaps, IsEmpty());
  EXPECT_THAT(released(272).starts, ElementsAre(0, 16));
  EXPECT_THAT(released(272).overlaps, ElementsAre(240));
  EXPECT_THAT(released(288).starts, ElementsAre(0, 32));
  EXPECT_THAT(released(288).overlaps, ElementsAre(224));
  EXPECT_THAT(released(480).starts, ElementsAre(0, 112, 224));
  EXPECT_THAT(released(480).overlaps, ElementsAre(144, 144));
  EXPECT_THAT(released(512).starts, ElementsAre(0, 128, 256));
  EXPECT_THAT(released(512).overlaps, ElementsAre(128, 128));
  EXPECT_THAT(released(768).starts, ElementsAre(0, 160, 336, 512));
  EXPECT_THAT(released(768).overlaps, ElementsAre(96, 80, 80));
  EXPECT_THAT(released(864).starts, ElementsAre(0, 144, 288, 448, 608));
  EXPECT_THAT(released(864).overlaps, ElementsAre(112, 112, 96, 96));
  EXPECT_THAT(released(1216).starts, ElementsAre(0, 192, 384, 576, 768, 960));
  EXPECT_THAT(released(1216).overlaps, ElementsAre(64, 64, 64, 64, 64));
  EXPECT_THAT(released(1344).starts, ElementsAre(0, 176, 352, 528, 704, 896, 1088));
  EXPECT_THAT(released(1344).overlaps, ElementsAre(80, 80, 80, 80, 64, 64));
  EXPECT_THAT(released(1920).starts,
              ElementsAre(0, 176, 352, 528, 704, 896, 1088, 1280, 1472, 1664));
  EXPECT_THAT(released(1920).overlaps, ElementsAre(80, 80, 80, 80, 64, 64, 64, 64, 64));
}

TEST(Tiling, EveryLengthAgreesWithTheReference) {
  const TensorFile golden = testing::open_golden("video_vae.safetensors");
  for (std::int64_t length = 32; length <= 2048; length += 32) {
    const std::string prefix = fmt::format("tiling.length_{}.", length);
    EXPECT_EQ(released(length).starts, testing::golden_integers(golden, prefix + "starts"))
        << length;
    EXPECT_EQ(released(length).overlaps, testing::golden_integers(golden, prefix + "overlaps"))
        << length;
  }
}

TEST(Tiling, ShortAxisIsOneSmallerTile) {
  const AxisTiles axis = released(96);
  EXPECT_EQ(axis.tile, 96);
  EXPECT_EQ(axis.count(), 1);
}

TEST(Tiling, EveryLegalLengthIsCoveredWithLegalOverlaps) {
  for (std::int64_t length = 16; length <= 4096; length += 16) {
    const AxisTiles axis = released(length);
    EXPECT_EQ(axis.starts.back() + axis.tile, length);
    for (std::size_t i = 0; i < axis.overlaps.size(); ++i) {
      EXPECT_GE(axis.overlaps[i], 64);
      EXPECT_LT(axis.overlaps[i], 256);
      EXPECT_EQ(axis.starts[i + 1], axis.starts[i] + 256 - axis.overlaps[i]);
    }
  }
}

TEST(Tiling, RefusesLengthsOffTheGrid) {
  EXPECT_THROW(split_axis(100, 256, 64, 16), InternalError);
  EXPECT_THROW(split_axis(0, 256, 64, 16), InternalError);
  EXPECT_THROW(split_axis(512, 256, 256, 16), InternalError);
}

TEST(Tiling, PixelCoveredByThreeTilesShowsTheLastTwo) {
  // 480: starts 0, 112, 224; pixel 240 lies in all three tiles (spec vae.md §11.10).
  const std::vector<PixelOwner> owners = pixel_owners(released(480));
  EXPECT_EQ(owners[240].tile, 2);
  EXPECT_NEAR(owners[240].weight, 16.0 / 144.0, 1e-7);
  EXPECT_NEAR(owners[240].previous_weight, 128.0 / 144.0, 1e-7);
  EXPECT_EQ(owners[111].tile, 0);
  EXPECT_EQ(owners[111].weight, 1.0F);
  EXPECT_EQ(owners[112].weight, 0.0F);  // a ramp starts at the earlier tile alone
  EXPECT_EQ(owners[112].previous_weight, 1.0F);
  EXPECT_EQ(owners[368].tile, 2);  // 224 + 144: past the ramp
  EXPECT_EQ(owners[368].weight, 1.0F);
}

struct Grid {
  AxisTiles vertical;
  AxisTiles horizontal;
  std::vector<Tensor> tiles;  // row-major, [1, tile, tile]
};

Tensor stitched(CpuDevice& device, const Grid& grid, BlendMode mode) {
  Tensor canvas = empty_tensor(device, {1, grid.vertical.length, grid.horizontal.length});
  std::fill(canvas.f32().begin(), canvas.f32().end(), 0.0F);
  const auto rows = pixel_owners(grid.vertical);
  const auto columns = pixel_owners(grid.horizontal);
  for (std::int64_t row = 0; row < grid.vertical.count(); ++row) {
    for (std::int64_t column = 0; column < grid.horizontal.count(); ++column) {
      const auto index = static_cast<std::size_t>(row * grid.horizontal.count() + column);
      add_tile(canvas.view(), grid.tiles[index].view(), grid.vertical, grid.horizontal, rows,
               columns, row, column, mode);
    }
  }
  return canvas;
}

TEST(Tiling, CornerOfFourTilesAsTheSpecWorksItOut) {
  CpuDevice device;
  Grid grid{split_axis(416, 256, 64, 16), split_axis(432, 256, 64, 16), {}};
  // 416: overlap 96; 432: overlap 80.
  ASSERT_THAT(grid.vertical.overlaps, ElementsAre(96));
  ASSERT_THAT(grid.horizontal.overlaps, ElementsAre(80));
  for (const float value : {100.0F, 200.0F, 300.0F, 400.0F}) {
    Tensor tile = empty_tensor(device, {1, 256, 256});
    std::fill(tile.f32().begin(), tile.f32().end(), value);
    grid.tiles.push_back(std::move(tile));
  }
  const std::size_t pixel = (160 + 24) * 432 + 176 + 16;  // wy = 24/96, wx = 16/80
  EXPECT_NEAR(stitched(device, grid, BlendMode::kRawNeighbours).f32()[pixel], 290.0, 1e-4);
  EXPECT_NEAR(stitched(device, grid, BlendMode::kSeparable).f32()[pixel], 170.0, 1e-4);
}

/// The stitch as the spec spells it out, piece by piece, in place of the closed form.
std::vector<float> stitched_step_by_step(const Grid& grid) {
  const std::int64_t tile = grid.vertical.tile;
  std::vector<float> canvas(
      static_cast<std::size_t>(grid.vertical.length * grid.horizontal.length));
  for (std::int64_t i = 0; i < grid.vertical.count(); ++i) {
    for (std::int64_t j = 0; j < grid.horizontal.count(); ++j) {
      const auto raw = [&](std::int64_t row, std::int64_t column) {
        return grid.tiles[static_cast<std::size_t>(row * grid.horizontal.count() + column)].f32();
      };
      std::vector<float> result(raw(i, j).begin(), raw(i, j).end());
      if (i > 0) {
        const std::int64_t extent = grid.vertical.overlaps[static_cast<std::size_t>(i - 1)];
        for (std::int64_t k = 0; k < extent; ++k) {
          const float w = static_cast<float>(k) / static_cast<float>(extent);
          for (std::int64_t x = 0; x < tile; ++x) {
            float& value = result[static_cast<std::size_t>(k * tile + x)];
            value = raw(i - 1, j)[static_cast<std::size_t>((tile - extent + k) * tile + x)] *
                        (1.0F - w) +
                    value * w;
          }
        }
      }
      if (j > 0) {
        const std::int64_t extent = grid.horizontal.overlaps[static_cast<std::size_t>(j - 1)];
        for (std::int64_t k = 0; k < extent; ++k) {
          const float w = static_cast<float>(k) / static_cast<float>(extent);
          for (std::int64_t y = 0; y < tile; ++y) {
            float& value = result[static_cast<std::size_t>(y * tile + k)];
            value =
                raw(i, j - 1)[static_cast<std::size_t>(y * tile + tile - extent + k)] * (1.0F - w) +
                value * w;
          }
        }
      }
      // Later tiles overwrite what the trim would have dropped.
      for (std::int64_t y = 0; y < tile; ++y) {
        for (std::int64_t x = 0; x < tile; ++x) {
          const std::int64_t top = grid.vertical.starts[static_cast<std::size_t>(i)] + y;
          const std::int64_t left = grid.horizontal.starts[static_cast<std::size_t>(j)] + x;
          canvas[static_cast<std::size_t>(top * grid.horizontal.length + left)] =
              result[static_cast<std::size_t>(y * tile + x)];
        }
      }
    }
  }
  return canvas;
}

TEST(Tiling, ClosedFormEqualsThePairwiseProcedure) {
  CpuDevice device;
  for (const auto& [height, width] :
       {std::pair<std::int64_t, std::int64_t>{18, 30}, {30, 18}, {54, 84}, {32, 16}, {48, 48}}) {
    Grid grid{split_axis(height, 16, 4, 1), split_axis(width, 16, 4, 1), {}};
    for (std::int64_t i = 0; i < grid.vertical.count() * grid.horizontal.count(); ++i) {
      grid.tiles.push_back(
          testing::random_tensor(device, {1, 16, 16}, static_cast<std::uint64_t>(i + 1)));
    }
    EXPECT_TRUE(testing::close_to(stitched(device, grid, BlendMode::kRawNeighbours).f32(),
                                  stitched_step_by_step(grid), 1e-6))
        << height << " x " << width;
  }
}

TEST(Tiling, EqualTilesStitchToThemselvesInBothModes) {
  CpuDevice device;
  Grid grid{split_axis(54, 16, 4, 1), split_axis(84, 16, 4, 1), {}};
  for (std::int64_t i = 0; i < grid.vertical.count() * grid.horizontal.count(); ++i) {
    Tensor tile = empty_tensor(device, {1, 16, 16});
    std::fill(tile.f32().begin(), tile.f32().end(), 1.0F);
    grid.tiles.push_back(std::move(tile));
  }
  for (const BlendMode mode : {BlendMode::kRawNeighbours, BlendMode::kSeparable}) {
    const Tensor canvas = stitched(device, grid, mode);
    for (const float value : canvas.f32()) {
      ASSERT_NEAR(value, 1.0F, 1e-6F);
    }
  }
}

}  // namespace
}  // namespace miniacc::video_vae
