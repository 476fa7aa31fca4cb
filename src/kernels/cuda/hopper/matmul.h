#pragma once

#include "kernels/cuda/matmul.h"

/// The products of kernels/cuda/matmul.h on the warpgroup instructions (wgmma) and the copy engine
/// (TMA) of compute capability 9.0. Compiled for sm_90a alone; a build without that architecture
/// links absent.cpp, which knows no card.
namespace miniacc::ops::cuda::hopper {

/// How many multiprocessors this CUDA device has if the kernels run on it: if its compute
/// capability is 9.0 and this build has them. Otherwise 0.
[[nodiscard]] int multiprocessors(int ordinal);

/// The operands after padding (aligned_rows), as both products take them.
struct Operands {
  const void* x = nullptr;      ///< [rows, depth], contiguous
  const void* w = nullptr;      ///< [n, depth], contiguous
  std::int64_t depth = 0;       ///< values, a multiple of 16 bytes
  const float* bias = nullptr;  ///< [n] or null
};

/// out = x · wᵀ (+ bias), f32 sums. `tile` is one of the wgmma forms, `raster` as in matmul.h.
/// Throws DeviceError where the launch fails.
void matmul_bf16(OpContext& ctx, TensorView out, const Operands& operands, MatmulTile tile,
                 MatmulRaster raster);

/// out = float(x · wᵀ) · (x_scale[row] · w_scale[column]) (+ bias), the bits of the mma.sync form.
void matmul_int8(OpContext& ctx, TensorView out, const Operands& operands, const float* x_scale,
                 const float* w_scale, MatmulTile tile, MatmulRaster raster);

}  // namespace miniacc::ops::cuda::hopper
