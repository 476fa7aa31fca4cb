#pragma once

#include <cstdint>

#include "kernels/cuda/launch.cuh"

/// Reductions over the threads that share a row: threadIdx.x of kThreads, where kThreads is one
/// warp (then threadIdx.y counts the rows of the block) or the whole block. All threads of the row
/// call them and all get the result; the order of additions is fixed.
namespace miniacc::ops::cuda {

/// Combines `value` over a row; `combine` is associative enough for the caller. The shared memory
/// of block-wide calls is safe to use again at once.
template <int kThreads, typename T, typename Combine>
__device__ T row_reduce(T value, Combine combine) {
  static_assert(kThreads % kWarp == 0);
  constexpr unsigned kAllLanes = 0xFFFFFFFF;
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = combine(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  if constexpr (kThreads > kWarp) {
    __shared__ T of_warp[kThreads / kWarp];
    if (threadIdx.x % kWarp == 0) {
      of_warp[threadIdx.x / kWarp] = value;
    }
    __syncthreads();
    value = of_warp[0];
    for (int warp = 1; warp < kThreads / kWarp; ++warp) {
      value = combine(value, of_warp[warp]);
    }
    __syncthreads();
  }
  return value;
}

template <int kThreads>
__device__ double row_sum(double value) {
  return row_reduce<kThreads>(value, [](double a, double b) { return a + b; });
}

template <int kThreads>
__device__ unsigned row_max(unsigned value) {
  return row_reduce<kThreads>(value, [](unsigned a, unsigned b) { return a > b ? a : b; });
}

/// The row of this thread for kernels whose block is (kThreads, rows a block).
__device__ inline std::int64_t row_of_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
}

/// Rows of up to this many values take a warp, eight to a block: no shared memory, no barrier.
inline constexpr std::int64_t kWarpRow = 512;

/// Launches the variant of a row kernel that suits rows of `columns` values: `warp_kernel` was made
/// with kThreads = kWarp, `block_kernel` with kBlock.
template <typename... Parameters, typename... Arguments>
void launch_rows(const char* op, const OpContext& ctx, const ConstTensorView& where,
                 std::int64_t rows, std::int64_t columns, void (*warp_kernel)(Parameters...),
                 void (*block_kernel)(Parameters...), Arguments... arguments) {
  constexpr int kRows = kBlock / kWarp;
  if (columns <= kWarpRow) {
    launch(op, ctx, where, dim3(grid_x(div_up(rows, kRows))), dim3(kWarp, kRows), warp_kernel,
           arguments...);
  } else {
    launch(op, ctx, where, dim3(grid_x(rows)), dim3(kBlock), block_kernel, arguments...);
  }
}

}  // namespace miniacc::ops::cuda
