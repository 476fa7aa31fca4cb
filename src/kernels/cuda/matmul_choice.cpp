#include "kernels/cuda/matmul_choice.h"

#include "core/error.h"
#include "kernels/cuda/hopper/matmul.h"

namespace miniacc::ops::cuda {
namespace {

std::int64_t tiles(const ConstTensorView& out, std::int64_t rows, std::int64_t columns) {
  return (out.dim(0) + rows - 1) / rows * ((out.dim(1) + columns - 1) / columns);
}

}  // namespace

const char* name(MatmulTile tile) {
  switch (tile) {
    case MatmulTile::kAuto:
      return "auto";
    case MatmulTile::k64x64:
      return "mma.sync 64x64";
    case MatmulTile::k128x256:
      return "mma.sync 128x256";
    case MatmulTile::kWgmma128x256:
      return "wgmma 128x256";
    case MatmulTile::kWgmmaPingPong128x128:
      return "wgmma ping-pong 128x128";
  }
  return "unknown";
}

bool is_wgmma(MatmulTile tile) {
  return tile != MatmulTile::kAuto && tile != MatmulTile::k64x64 && tile != MatmulTile::k128x256;
}

bool wgmma_takes(ConstTensorView out) {
  constexpr std::int64_t kLongest = 0x7FFFFFFF;
  constexpr std::int64_t kRun = 16 / sizeof(float);
  return reinterpret_cast<std::uintptr_t>(out.data) % 16 == 0 && out.stride(0) % kRun == 0 &&
         out.dim(1) % kRun == 0 && out.dim(0) <= kLongest && out.dim(1) <= kLongest &&
         hopper::multiprocessors(out.device.ordinal) > 0;
}

MatmulTile chosen_tile(ConstTensorView out) {
  if (wgmma_takes(out)) {
    const int multiprocessors = hopper::multiprocessors(out.device.ordinal);
    if (tiles(out, 128, 256) >= multiprocessors) {
      return MatmulTile::kWgmma128x256;
    }
    if (2 * tiles(out, 128, 128) >= multiprocessors) {
      return MatmulTile::kWgmmaPingPong128x128;
    }
  }
  // 64 large tiles: half of the multiprocessors of the largest cards busy with a full tile against
  // all of them with small ones. Reckoned, not measured.
  constexpr std::int64_t kEnough = 64;
  return tiles(out, 128, 256) >= kEnough ? MatmulTile::k128x256 : MatmulTile::k64x64;
}

MatmulTile resolved(MatmulTile tile, ConstTensorView out) {
  if (tile == MatmulTile::kAuto) {
    return chosen_tile(out);
  }
  MINIACC_REQUIRE(!is_wgmma(tile) || wgmma_takes(out),
                  "linear: the wgmma forms need a card of compute capability 9.0, a build for it "
                  "and a result whose rows start and end at multiples of 16 bytes");
  return tile;
}

MatmulRaster resolved(MatmulRaster raster, MatmulTile /*tile*/, ConstTensorView /*out*/) {
  if (raster.group == 0) {
    // Bands of 2,048 columns: with 132 tiles of 128×256 in flight a block of 2,048 by 2,112.
    raster.along_rows = true;
    raster.group = 8;
  }
  return raster;
}

}  // namespace miniacc::ops::cuda
