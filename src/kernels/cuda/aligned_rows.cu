#include "kernels/cuda/aligned_rows.cuh"

namespace miniacc::ops::cuda {
namespace {

constexpr std::int64_t kRun = 16;

// Reads row_bytes and writes padded_bytes a row; only shapes that no released model has come here,
// so that a byte a thread is good enough.
__global__ void __launch_bounds__(kBlock)
    pad_rows_kernel(unsigned char* out, std::int64_t padded_bytes, const unsigned char* x,
                    std::int64_t row_bytes) {
  const std::int64_t row = blockIdx.x;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * kBlock;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.y) * kBlock + threadIdx.x;
       i < padded_bytes; i += step) {
    out[row * padded_bytes + i] =
        i < row_bytes ? x[row * row_bytes + i] : static_cast<unsigned char>(0);
  }
}

}  // namespace

AlignedRows aligned_rows(OpContext& ctx, ConstTensorView x) {
  AlignedRows result;
  const std::int64_t row_bytes = x.dim(1) * static_cast<std::int64_t>(block_bytes(x.dtype));
  result.data = static_cast<const unsigned char*>(x.data);
  result.row_bytes = row_bytes;
  if (row_bytes % kRun == 0 && reinterpret_cast<std::uintptr_t>(x.data) % kRun == 0) {
    return result;
  }
  result.row_bytes = div_up(row_bytes, kRun) * kRun;
  result.copy = empty_tensor(ctx.device, {x.dim(0), result.row_bytes}, DType::kU8);
  auto* padded = result.copy.view().as<unsigned char>();
  launch("aligned_rows", ctx, x, row_grid(x.dim(0), result.row_bytes), dim3(kBlock),
         pad_rows_kernel, padded, result.row_bytes, result.data, row_bytes);
  result.data = padded;
  return result;
}

}  // namespace miniacc::ops::cuda
