#pragma once

#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"

/// Tiles of matrix rows in shared memory as ldmatrix wants them: rows of kChunks chunks of 16 bytes
/// (a power of two), the chunks of a row permuted so that the 8 rows of one 8×16-byte matrix lie in
/// different banks, and so do the 8 chunks that a quarter of a warp stores.
namespace miniacc::ops::cuda {

inline constexpr int kChunkBytes = 16;

/// Byte offset of chunk `chunk` of row `row`.
template <int kChunks>
__device__ inline int tile_offset(int row, int chunk) {
  static_assert(kChunks >= 2 && (kChunks & (kChunks - 1)) == 0);
  if constexpr (kChunks >= 8) {
    return (row * kChunks + (chunk ^ (row & 7))) * kChunkBytes;
  } else {
    constexpr int kRowsPerLine = 8 / kChunks;  // rows that share the 128 bytes of all banks
    return (row * kChunks + (chunk ^ ((row / kRowsPerLine) & (kChunks - 1)))) * kChunkBytes;
  }
}

/// Starts the copy of rows [first, first + kRows) of `source` into a tile, kThreads threads
/// together. Rows from `rows` on, and bytes of a row from `row_bytes` (a multiple of 16) on, become
/// zeros. `source` is the first byte that the tile wants of row 0; rows are `stride` bytes apart,
/// a multiple of 16.
template <int kRows, int kChunks, int kThreads>
__device__ inline void copy_tile(unsigned char* tile, const unsigned char* source,
                                 std::int64_t stride, std::int64_t first, std::int64_t rows,
                                 std::int64_t row_bytes) {
  constexpr int kCopies = kRows * kChunks;
#pragma unroll
  for (int i = 0; i < (kCopies + kThreads - 1) / kThreads; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    if (kCopies % kThreads != 0 && at >= kCopies) {
      break;
    }
    const int row = at / kChunks;
    const int chunk = at % kChunks;
    const bool valid = first + row < rows && chunk * kChunkBytes < row_bytes;
    // An address inside the matrix even where nothing is read.
    const unsigned char* from =
        valid ? source + (first + row) * stride + chunk * kChunkBytes : source;
    ptx::cp_async_16(tile + tile_offset<kChunks>(row, chunk), from, valid);
  }
}

/// The A fragment of rows [row, row + 16), chunks 2·step and 2·step + 1 of a tile. Warp.
template <int kChunks>
__device__ inline void load_a(std::uint32_t (&a)[4], const unsigned char* tile, int row, int step,
                              int lane) {
  ptx::ldmatrix_x4(a, tile + tile_offset<kChunks>(row + (lane & 15), 2 * step + (lane >> 4)));
}

/// The B fragments of 16 columns of a product, which are rows [row, row + 16) of a tile: b[0] and
/// b[1] of the first eight, then of the second eight. Warp.
template <int kChunks>
__device__ inline void load_b_pair(std::uint32_t (&b)[4], const unsigned char* tile, int row,
                                   int step, int lane) {
  ptx::ldmatrix_x4(b, tile + tile_offset<kChunks>(row + (lane & 7) + ((lane >> 4) << 3),
                                                  2 * step + ((lane >> 3) & 1)));
}

}  // namespace miniacc::ops::cuda
