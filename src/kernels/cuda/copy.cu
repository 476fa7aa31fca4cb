#include "device/cuda_device.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ops.h"

namespace miniacc::ops::cuda {
namespace {

// Moves 8 bytes a value; bound by memory. One value a thread. IEEE division: the CPU's bits.
__global__ void __launch_bounds__(kBlock)
    divide_kernel(float* x, float divisor, std::int64_t size) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (i < size) {
    x[i] = __fdiv_rn(x[i], divisor);
  }
}

// Reads 4 bytes a value; bound by memory. Whoever sees a bad value writes the same 1.
__global__ void __launch_bounds__(kBlock)
    find_non_finite_kernel(std::int32_t* found, const float* x, std::int64_t size) {
  constexpr unsigned kExponent = 0x7F800000;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kBlock;
  bool bad = false;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x; i < size;
       i += step) {
    bad = bad || (__float_as_uint(x[i]) & kExponent) == kExponent;
  }
  if (bad) {
    *found = 1;
  }
}

}  // namespace

void copy(OpContext& ctx, TensorView out, ConstTensorView x) {
  miniacc::cuda::copy_async(out, x, ctx.stream);
  // The host's memory may go away, or be read, right behind this call.
  if (out.device.kind == DeviceKind::kCpu || x.device.kind == DeviceKind::kCpu) {
    miniacc::cuda::synchronize(ctx.stream);
  }
}

void fill_zero(OpContext& ctx, TensorView x) {
  const auto bytes = storage_bytes(x.dtype, x.num_elements());
  MINIACC_REQUIRE(bytes.has_value(), "fill_zero: a view has a size");
  const miniacc::cuda::DeviceScope scope(x.device.ordinal);
  miniacc::cuda::check(cudaMemsetAsync(x.data, 0, *bytes, ctx.stream), "fill_zero");
}

void divide(OpContext& ctx, TensorView x, float divisor) {
  const std::int64_t size = x.num_elements();
  launch("divide", ctx, x, dim3(grid_x(div_up(size, kBlock))), dim3(kBlock), divide_kernel, x.f32(),
         divisor, size);
}

bool all_finite(OpContext& ctx, ConstTensorView x) {
  constexpr std::int64_t kMostBlocks = 1024;  // a few a multiprocessor; each thread then loops
  const std::int64_t size = x.num_elements();
  Tensor found = empty_tensor(ctx.device, {1}, DType::kI32);
  fill_zero(ctx, found.view());
  launch("all_finite", ctx, x,
         dim3(grid_x(std::min(kMostBlocks, div_up(size, std::int64_t{kBlock})))), dim3(kBlock),
         find_non_finite_kernel, found.view().as<std::int32_t>(), x.f32(), size);
  std::int32_t answer = 0;
  copy(ctx, TensorView(&answer, found.shape(), DType::kI32), found.view());
  return answer == 0;
}

}  // namespace miniacc::ops::cuda
