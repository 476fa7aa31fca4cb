#include <cmath>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"

namespace miniacc::ops::cuda {
namespace {

// Moves 5 bytes a value (4 read, 1 written); the second reading of x comes from L1 or L2. Bound by
// memory. kThreads threads a row. The peak is found on the bits of the magnitudes, which order like
// the magnitudes and put NaN above infinity. Division and rounding are IEEE's, so that scales and
// values equal the CPU's bit for bit.
template <int kThreads>
__global__ void __launch_bounds__(kBlock)
    quantize_rows_kernel(std::int8_t* out, float* scale, const float* x, std::int64_t rows,
                         std::int64_t size) {
  constexpr unsigned kInfinity = 0x7F800000;
  const std::int64_t row = row_of_thread();
  if (row >= rows) {
    return;
  }
  const float* source = x + row * size;
  std::int8_t* target = out + row * size;
  unsigned bits = 0;
  for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
    bits = max(bits, __float_as_uint(source[i]) & 0x7FFFFFFFU);
  }
  const unsigned peak_bits = row_max<kThreads>(bits);
  const bool finite = peak_bits < kInfinity;
  // peak / 127 of a subnormal peak can round to 0: then the smallest float stands for it.
  float step = fmaxf(__fdiv_rn(__uint_as_float(peak_bits), 127.0F), __uint_as_float(1));
  step = peak_bits == 0 ? 1.0F : step;
  if (threadIdx.x == 0) {
    scale[row] = finite ? step : nanf("");
  }
  for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
    // A subnormal step can make the quotient leave the range by rounding.
    const float value = fminf(fmaxf(__fdiv_rn(source[i], step), -127.0F), 127.0F);
    target[i] = finite ? static_cast<std::int8_t>(rintf(value)) : std::int8_t{0};
  }
}

constexpr int kTile = 4096;  // floats of shared memory: 16 KiB, whole groups of every power of 4

// Moves 8 bytes a value; log4(group) passes through shared memory, whose bandwidth bounds it for
// large groups (the pass with stride 1 has four-way bank conflicts). x is one run of groups, so a
// block takes kTile consecutive values, whatever rows they belong to; `count` is a whole number of
// groups. Additions come in the order of the CPU version.
__global__ void __launch_bounds__(kBlock)
    rotate_rows_kernel(float* x, std::int64_t count, int group, float norm) {
  __shared__ float tile[kTile];
  float* data = x + static_cast<std::int64_t>(blockIdx.x) * kTile;
  const std::int64_t left = count - static_cast<std::int64_t>(blockIdx.x) * kTile;
  const int size = left < kTile ? static_cast<int>(left) : kTile;
  for (int i = threadIdx.x; i < size; i += kBlock) {
    tile[i] = data[i];
  }
  __syncthreads();
  // A Kronecker power is applied one 4x4 factor at a time, like a radix-4 butterfly.
  for (int stride = 1; stride < group; stride *= 4) {
    for (int j = threadIdx.x; j < size / 4; j += kBlock) {
      float* values = tile + (j / stride) * 4 * stride + j % stride;
      const float a = values[0];
      const float b = values[stride];
      const float c = values[2 * stride];
      const float d = values[3 * stride];
      values[0] = a + b + c - d;
      values[stride] = a + b - c + d;
      values[2 * stride] = a - b + c + d;
      values[3 * stride] = -a + b + c + d;
    }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < size; i += kBlock) {
    data[i] = tile[i] * norm;
  }
}

}  // namespace

void quantize_rows(OpContext& ctx, TensorView out, TensorView scale, ConstTensorView x) {
  launch_rows("quantize_rows", ctx, out, x.dim(0), x.dim(1), quantize_rows_kernel<kWarp>,
              quantize_rows_kernel<kBlock>, out.as<std::int8_t>(), scale.f32(), x.f32(), x.dim(0),
              x.dim(1));
}

void rotate_rows(OpContext& ctx, TensorView x, std::int64_t group) {
  MINIACC_REQUIRE(group <= kTile, "rotate_rows: CUDA rotates groups of at most 4096");
  const std::int64_t count = x.num_elements();
  const float norm = 1.0F / std::sqrt(static_cast<float>(group));
  launch("rotate_rows", ctx, x, dim3(grid_x(div_up(count, kTile))), dim3(kBlock),
         rotate_rows_kernel, x.f32(), count, static_cast<int>(group), norm);
}

}  // namespace miniacc::ops::cuda
