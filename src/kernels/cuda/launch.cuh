#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "core/error.h"
#include "device/cuda_check.h"
#include "device/cuda_handles.h"
#include "kernels/op_context.h"

/// What the launchers share. What the comments above kernels say of bounds is reckoned, not
/// measured; docs/testing.md says which cards the kernels have run on. Every offset in the kernels
/// is 64-bit: the tensors of a long clip hold more than 2^31 elements.
namespace miniacc::ops::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kBlock = 256;  // threads; eight blocks fill a multiprocessor

inline std::int64_t div_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Blocks along a grid's first axis.
inline unsigned grid_x(std::int64_t blocks) {
  MINIACC_REQUIRE(blocks <= 0x7FFFFFFF, "cuda: more blocks than a grid holds");
  return static_cast<unsigned>(blocks);
}

/// One block a row and, where rows are long, several side by side along the second axis, whose
/// threads step through the columns together.
inline dim3 row_grid(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kColumnsPerBlock = 4 * kBlock;
  constexpr std::int64_t kMaxGridY = 65535;
  return {grid_x(rows), static_cast<unsigned>(std::clamp<std::int64_t>(
                            div_up(columns, kColumnsPerBlock), 1, kMaxGridY))};
}

/// Launches kernel(arguments...) with `shared_bytes` of dynamic shared memory (ptx::dynamic_shared)
/// in ctx.stream on the device of `where`, and reports a refused launch under the op's name. No
/// block at all is no launch: the driver refuses an empty grid. The only place that launches: the
/// emulation of tests/cuda_emulation has the runtime's call, but not nvcc's <<<>>>.
template <typename... Parameters, typename... Arguments>
void launch_shared(const char* op, const OpContext& ctx, const ConstTensorView& where, dim3 grid,
                   dim3 block, std::size_t shared_bytes, void (*kernel)(Parameters...),
                   Arguments... arguments) {
  if (grid.x == 0) {
    return;
  }
  constexpr std::size_t kUnasked = std::size_t{48} << 10;  // a launch may take that much as it is
  const miniacc::cuda::DeviceScope scope(where.device.ordinal);
  if (shared_bytes > kUnasked) {
    miniacc::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              static_cast<int>(shared_bytes)),
                         op);
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = ctx.stream;
  miniacc::cuda::check(cudaLaunchKernelEx(&config, kernel, arguments...), op);
}

/// The same without dynamic shared memory.
template <typename... Parameters, typename... Arguments>
void launch(const char* op, const OpContext& ctx, const ConstTensorView& where, dim3 grid,
            dim3 block, void (*kernel)(Parameters...), Arguments... arguments) {
  launch_shared(op, ctx, where, grid, block, 0, kernel, arguments...);
}

}  // namespace miniacc::ops::cuda
