#pragma once

#include <cstdint>

#include "kernels/cuda/matmul.h"
#include "kernels/cuda/tile.cuh"

/// One product for all cards from sm_80 on: A [rows, depth] times the transpose of B
/// [columns, depth], operands of 1 or 2 bytes a value. An m16n8 instruction takes 32 bytes of depth
/// whatever the type, so that the kernel counts bytes and only the instruction differs.
namespace miniacc::ops::cuda {

struct MatmulOperands {
  const unsigned char* a;  ///< [rows], a_stride bytes apart
  const unsigned char* b;  ///< [columns], b_stride bytes apart
  std::int64_t a_stride;   ///< multiples of 16, as are both addresses
  std::int64_t b_stride;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t depth_bytes;  ///< a multiple of 16
};

struct Bf16Product {
  using Sum = float;
  __device__ static void multiply(Sum (&d)[4], const std::uint32_t (&a)[4],
                                  const std::uint32_t (&b)[2]) {
    ptx::mma_bf16(d, a, b);
  }
};

struct Int8Product {
  using Sum = std::int32_t;
  __device__ static void multiply(Sum (&d)[4], const std::uint32_t (&a)[4],
                                  const std::uint32_t (&b)[2]) {
    ptx::mma_s8(d, a, b);
  }
};

/// kTileM × kTileN of the result a block, kWarpsM × kWarpsN warps, kStages slabs of 64 bytes of
/// depth in flight.
template <int kTileM_, int kTileN_, int kWarpsM_, int kWarpsN_, int kStages_>
struct MatmulShape {
  static constexpr int kTileM = kTileM_;
  static constexpr int kTileN = kTileN_;
  static constexpr int kWarpsM = kWarpsM_;
  static constexpr int kWarpsN = kWarpsN_;
  static constexpr int kStages = kStages_;
  static constexpr int kThreads = kWarp * kWarpsM * kWarpsN;
  static constexpr int kSlabBytes = 64;
  static constexpr int kChunks = kSlabBytes / kChunkBytes;
  static constexpr int kStageBytes = (kTileM + kTileN) * kSlabBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes;
};

// 8 warps of 64×64: 32 mma for 8 ldmatrix. 96 KiB of shared memory and 240 registers a thread: one
// block a multiprocessor.
using LargeShape = MatmulShape<128, 256, 2, 4, 4>;
// For results too small to fill a card with large tiles. 32 KiB.
using SmallShape = MatmulShape<64, 64, 2, 2, 4>;

/// Which tile of the result block `index` computes. Blocks in flight at once share kSuperRow tiles
/// of A (2,048 rows with large tiles), which stay in L2 while B passes by once.
struct TilePosition {
  std::int64_t row;
  std::int64_t column;
};
__device__ inline TilePosition tile_position(std::int64_t index, std::int64_t row_tiles,
                                             std::int64_t column_tiles) {
  constexpr std::int64_t kSuperRow = 16;
  const std::int64_t super = index / (kSuperRow * column_tiles);
  const std::int64_t first = super * kSuperRow;
  const std::int64_t left = row_tiles - first;
  const std::int64_t height = left < kSuperRow ? left : kSuperRow;
  const std::int64_t within = index - first * column_tiles;
  return {first + within % height, within / height};
}

// Floor: 2·rows·columns·depth operations; bytes rows·depth + columns·depth + 4·rows·columns. At the
// full model's four shapes (docs/performance.md) arithmetic bounds it by an order of magnitude.
// Shared memory: a large tile moves (64 + 64)·32 bytes a warp and 32 mma, about half of what the
// banks deliver in the time of those mma on sm_89.
// Epilogue::store(row, column, first, second) gets two neighbouring sums; column is even and inside
// the result, column + 1 may be outside.
template <typename Product, typename Shape, typename Epilogue>
__global__ void __launch_bounds__(Shape::kThreads)
    matmul_kernel(MatmulOperands operands, Epilogue epilogue, std::int64_t row_tiles,
                  std::int64_t column_tiles) {
  constexpr int kWarpM = Shape::kTileM / Shape::kWarpsM;
  constexpr int kWarpN = Shape::kTileN / Shape::kWarpsN;
  constexpr int kMmaM = kWarpM / 16;
  constexpr int kPairs = kWarpN / 16;
  constexpr int kChunks = Shape::kChunks;
  constexpr int kSteps = Shape::kSlabBytes / 32;

  unsigned char* shared = ptx::dynamic_shared();
  const TilePosition tile = tile_position(blockIdx.x, row_tiles, column_tiles);
  const std::int64_t first_row = tile.row * Shape::kTileM;
  const std::int64_t first_column = tile.column * Shape::kTileN;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp_row = warp / Shape::kWarpsN * kWarpM;
  const int warp_column = warp % Shape::kWarpsN * kWarpN;
  const std::int64_t slabs = (operands.depth_bytes + Shape::kSlabBytes - 1) / Shape::kSlabBytes;

  const auto copy_slab = [&](std::int64_t slab) {
    if (slab < slabs) {
      unsigned char* stage = shared + slab % Shape::kStages * Shape::kStageBytes;
      const std::int64_t at = slab * Shape::kSlabBytes;
      copy_tile<Shape::kTileM, kChunks, Shape::kThreads>(stage, operands.a + at, operands.a_stride,
                                                         first_row, operands.rows,
                                                         operands.depth_bytes - at);
      copy_tile<Shape::kTileN, kChunks, Shape::kThreads>(
          stage + Shape::kTileM * Shape::kSlabBytes, operands.b + at, operands.b_stride,
          first_column, operands.columns, operands.depth_bytes - at);
    }
    ptx::cp_async_commit();  // an empty group where there is no slab, so that counting stays simple
  };

  typename Product::Sum sums[kMmaM][2 * kPairs][4] = {};
#pragma unroll
  for (int slab = 0; slab < Shape::kStages - 1; ++slab) {
    copy_slab(slab);
  }
  for (std::int64_t slab = 0; slab < slabs; ++slab) {
    ptx::cp_async_wait<Shape::kStages - 2>();
    __syncthreads();  // slab is here for all, and nobody reads the stage that is filled next
    copy_slab(slab + Shape::kStages - 1);
    const unsigned char* a_tile = shared + slab % Shape::kStages * Shape::kStageBytes;
    const unsigned char* b_tile = a_tile + Shape::kTileM * Shape::kSlabBytes;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      std::uint32_t a[kMmaM][4];
      std::uint32_t b[kPairs][4];
#pragma unroll
      for (int i = 0; i < kMmaM; ++i) {
        load_a<kChunks>(a[i], a_tile, warp_row + 16 * i, step, lane);
      }
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        load_b_pair<kChunks>(b[j], b_tile, warp_column + 16 * j, step, lane);
      }
#pragma unroll
      for (int i = 0; i < kMmaM; ++i) {
#pragma unroll
        for (int j = 0; j < kPairs; ++j) {
          const std::uint32_t first[2] = {b[j][0], b[j][1]};
          const std::uint32_t second[2] = {b[j][2], b[j][3]};
          Product::multiply(sums[i][2 * j], a[i], first);
          Product::multiply(sums[i][2 * j + 1], a[i], second);
        }
      }
    }
  }
  ptx::cp_async_wait<0>();

#pragma unroll
  for (int i = 0; i < kMmaM; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = first_row + warp_row + 16 * i + 8 * half + lane / 4;
      if (row >= operands.rows) {
        continue;
      }
#pragma unroll
      for (int j = 0; j < 2 * kPairs; ++j) {
        const std::int64_t column = first_column + warp_column + 8 * j + 2 * (lane % 4);
        if (column < operands.columns) {
          epilogue.store(row, column, sums[i][j][2 * half], sums[i][j][2 * half + 1]);
        }
      }
    }
  }
}

/// Where results go, and how: two neighbours in one store where addresses allow it.
struct OutputRows {
  float* data;
  std::int64_t stride;
  std::int64_t columns;
  bool pairs;  ///< every pair of columns (even, odd) is 8-byte aligned

  __device__ void store(std::int64_t row, std::int64_t column, float first, float second) const {
    float* target = data + row * stride + column;
    if (pairs && column + 1 < columns) {
      *reinterpret_cast<float2*>(target) = make_float2(first, second);
      return;
    }
    target[0] = first;
    if (column + 1 < columns) {
      target[1] = second;
    }
  }
};

inline OutputRows output_rows(TensorView out) {
  return {out.f32(), out.stride(0), out.dim(1),
          out.stride(0) % 2 == 0 && reinterpret_cast<std::uintptr_t>(out.data) % 8 == 0};
}

template <typename Product, typename Shape, typename Epilogue>
void launch_matmul(const char* op, const OpContext& ctx, ConstTensorView on,
                   const MatmulOperands& operands, const Epilogue& epilogue) {
  const std::int64_t row_tiles = div_up(operands.rows, Shape::kTileM);
  const std::int64_t column_tiles = div_up(operands.columns, Shape::kTileN);
  launch_shared(op, ctx, on, dim3(grid_x(row_tiles * column_tiles)), dim3(Shape::kThreads),
                Shape::kSharedBytes, matmul_kernel<Product, Shape, Epilogue>, operands, epilogue,
                row_tiles, column_tiles);
}

}  // namespace miniacc::ops::cuda
