#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/linear.h"

namespace miniacc::ops::cuda {
namespace {

// The f32 product: the reference arithmetic on a GPU, for checking, not for speed.
constexpr int kTile = 64;     // of rows and of columns, a block
constexpr int kSlab = 32;     // of depth, at once
constexpr int kThreads = 16;  // along each axis; each thread has 4×4 results, 16 apart
constexpr int kEach = kTile / kThreads;

/// A sum of many short sums: Kahan's, so that its error does not grow with their number. No
/// multiplication, hence nothing for the compiler to contract.
struct LongSum {
  float sum = 0.0F;
  float lost = 0.0F;
  __device__ void add(float value) {
    const float wanted = value - lost;
    const float next = sum + wanted;
    lost = (next - sum) - wanted;
    sum = next;
  }
};

// Floor: 2·rows·n·k operations on the f32 units. kSlab products are summed in order, then the short
// sum is added with compensation: the error stays that of sums of 32. Infinity makes the
// compensation NaN: a row with infinity gives NaN or infinity, as the contract has it.
__global__ void __launch_bounds__(kThreads* kThreads)
    linear_f32_kernel(float* out, std::int64_t out_stride, const float* x, std::int64_t x_stride,
                      const float* w, const float* bias, ProductUse use, std::int64_t rows,
                      std::int64_t n, std::int64_t k, std::int64_t column_tiles) {
  __shared__ float x_tile[kSlab][kTile + 1];
  __shared__ float w_tile[kSlab][kTile + 1];
  const int across = static_cast<int>(threadIdx.x) % kThreads;
  const int down = static_cast<int>(threadIdx.x) / kThreads;
  const std::int64_t first_row = blockIdx.x / column_tiles * kTile;
  const std::int64_t first_column = blockIdx.x % column_tiles * kTile;
  LongSum sums[kEach][kEach];
  for (std::int64_t first = 0; first < k; first += kSlab) {
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kSlab; i += kThreads * kThreads) {
      const int depth = i % kSlab;
      const int line = i / kSlab;
      const bool inside = first + depth < k;
      x_tile[depth][line] = inside && first_row + line < rows
                                ? x[(first_row + line) * x_stride + first + depth]
                                : 0.0F;
      w_tile[depth][line] =
          inside && first_column + line < n ? w[(first_column + line) * k + first + depth] : 0.0F;
    }
    __syncthreads();
    float part[kEach][kEach] = {};
    for (int depth = 0; depth < kSlab; ++depth) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          part[i][j] += x_tile[depth][down + kThreads * i] * w_tile[depth][across + kThreads * j];
        }
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        sums[i][j].add(part[i][j]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const std::int64_t row = first_row + down + kThreads * i;
      const std::int64_t column = first_column + across + kThreads * j;
      if (row < rows && column < n) {
        float value = use.factor * sums[i][j].sum;
        value = bias == nullptr ? value : value + bias[column];
        float* target = out + row * out_stride + column;
        *target = use.accumulate ? *target + value : value;
      }
    }
  }
}

// Moves 6 bytes a value (4 read, 2 written); bound by memory. Two neighbours a thread.
__global__ void __launch_bounds__(kBlock)
    round_rows_kernel(std::uint16_t* out, const float* x, std::int64_t x_stride, std::int64_t k) {
  const std::int64_t row = blockIdx.x;
  const float* source = x + row * x_stride;
  std::uint16_t* target = out + row * k;
  const std::int64_t step = 2 * static_cast<std::int64_t>(gridDim.y) * kBlock;
  for (std::int64_t i = 2 * (static_cast<std::int64_t>(blockIdx.y) * kBlock + threadIdx.x); i < k;
       i += step) {
    const std::uint32_t packed = ptx::pack_bf16(source[i], i + 1 < k ? source[i + 1] : 0.0F);
    if (k % 2 == 0) {
      *reinterpret_cast<std::uint32_t*>(target + i) = packed;
    } else {
      target[i] = static_cast<std::uint16_t>(packed);
      if (i + 1 < k) {
        target[i + 1] = static_cast<std::uint16_t>(packed >> 16);
      }
    }
  }
}

// Moves 8 bytes a value; bound by memory.
__global__ void __launch_bounds__(kBlock)
    copy_rows_kernel(float* out, const float* x, std::int64_t x_stride, std::int64_t k) {
  const std::int64_t row = blockIdx.x;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * kBlock;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.y) * kBlock + threadIdx.x; i < k;
       i += step) {
    out[row * k + i] = x[row * x_stride + i];
  }
}

void linear_bf16(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView w,
                 ConstTensorView bias) {
  const Tensor rounded = round_rows_to_bf16(ctx, x);
  matmul_bf16(ctx, out, rounded.view(), w, bias);
}

void linear_int8(OpContext& ctx, TensorView out, ConstTensorView x, const WeightMatrix& w,
                 ConstTensorView bias) {
  Tensor values = empty_tensor(ctx.device, x.shape, DType::kI8);
  Tensor scale = empty_tensor(ctx.device, {x.dim(0)});
  if (fits_rotate_quantize(x.dim(1), w.rotation_group)) {
    rotate_quantize_rows(ctx, values.view(), scale.view(), x, w.rotation_group);
  } else {  // the same operations, one kernel each: rows or groups that registers do not hold
    Tensor copy = empty_tensor(ctx.device, x.shape);
    launch("linear", ctx, x, row_grid(x.dim(0), x.dim(1)), dim3(kBlock), copy_rows_kernel,
           copy.view().f32(), x.f32(), x.stride(0), x.dim(1));
    if (w.rotation_group != 0) {
      rotate_rows(ctx, copy.view(), w.rotation_group);
    }
    quantize_rows(ctx, values.view(), scale.view(), copy.view());
  }
  matmul_int8(ctx, out, values.view(), scale.view(), w.values, w.row_scale, bias);
}

}  // namespace

Tensor round_rows_to_bf16(OpContext& ctx, ConstTensorView x) {
  Tensor rounded = empty_tensor(ctx.device, x.shape, DType::kBF16);
  launch("linear", ctx, x, row_grid(x.dim(0), x.dim(1) / 2), dim3(kBlock), round_rows_kernel,
         rounded.view().as<std::uint16_t>(), x.f32(), x.stride(0), x.dim(1));
  return rounded;
}

void matmul_f32(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView w,
                ConstTensorView bias, ProductUse use) {
  const std::int64_t column_tiles = div_up(out.dim(1), kTile);
  launch("linear", ctx, out, dim3(grid_x(div_up(out.dim(0), kTile) * column_tiles)),
         dim3(kThreads * kThreads), linear_f32_kernel, out.f32(), out.stride(0), x.f32(),
         x.stride(0), w.f32(), bias.empty() ? nullptr : bias.f32(), use, out.dim(0), out.dim(1),
         x.dim(1), column_tiles);
}

void linear_quantized(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView x_scale,
                      const WeightMatrix& w, ConstTensorView bias) {
  matmul_int8(ctx, out, x, x_scale, w.values, w.row_scale, bias);
}

void linear(OpContext& ctx, TensorView out, ConstTensorView x, const WeightMatrix& w,
            ConstTensorView bias) {
  switch (w.values.dtype) {
    case DType::kF32:
      matmul_f32(ctx, out, x, w.values, bias);
      return;
    case DType::kBF16:
      linear_bf16(ctx, out, x, w.values, bias);
      return;
    default:
      linear_int8(ctx, out, x, w, bias);
      return;
  }
}

}  // namespace miniacc::ops::cuda
