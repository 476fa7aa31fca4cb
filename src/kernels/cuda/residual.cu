#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ops.h"

namespace miniacc::ops::cuda {
namespace {

// Moves 12 bytes a value (two read, one written); bound by memory. One value a thread.
__global__ void __launch_bounds__(kBlock) add_kernel(float* h, const float* x, std::int64_t size) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (i < size) {
    h[i] += x[i];
  }
}

// Moves 12 bytes a value; the few rows of gates stay in L2. Bound by memory. A block works on one
// row, blocks along y share its columns. An index outside the table makes the row NaN, as the host
// cannot look at it without waiting for the device; nothing outside the table is read.
__global__ void __launch_bounds__(kBlock)
    gated_add_kernel(float* h, const float* x, const float* gate, std::int64_t gate_stride,
                     const std::int32_t* index, std::int64_t table_rows, std::int64_t size) {
  const std::int64_t row = blockIdx.x;
  const std::int64_t entry = index == nullptr ? 0 : index[row];
  const bool stray = entry < 0 || entry >= table_rows;
  const float* factor = gate + (stray ? 0 : entry * gate_stride);
  float* target = h + row * size;
  const float* source = x + row * size;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * kBlock;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.y) * kBlock + threadIdx.x; i < size;
       i += step) {
    target[i] = stray ? nanf("") : target[i] + factor[i] * source[i];
  }
}

}  // namespace

void add(OpContext& ctx, TensorView h, ConstTensorView x) {
  const std::int64_t size = h.num_elements();
  launch("add", ctx, h, dim3(grid_x(div_up(size, kBlock))), dim3(kBlock), add_kernel, h.f32(),
         x.f32(), size);
}

void gated_add(OpContext& ctx, TensorView h, ConstTensorView x, ConstTensorView gate,
               ConstTensorView index) {
  launch("gated_add", ctx, h, row_grid(h.dim(0), h.dim(1)), dim3(kBlock), gated_add_kernel, h.f32(),
         x.f32(), gate.f32(), gate.stride(0), index.empty() ? nullptr : index.as<std::int32_t>(),
         gate.dim(0), h.dim(1));
}

}  // namespace miniacc::ops::cuda
