#include <string>

#include "kernels/attention.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/flash_attention.cuh"
#include "kernels/cuda/launch.cuh"

namespace miniacc::ops::cuda {
namespace {

// Moves 6 bytes a value (4 read, 2 written); bound by memory. From [rows, heads, head_dim] to
// [heads, rows, dim], zeros beyond head_dim; two channels a thread.
__global__ void __launch_bounds__(kBlock)
    round_heads_kernel(std::uint32_t* out, const float* x, std::int64_t row_stride,
                       std::int64_t rows, std::int64_t heads, int head_dim, int dim) {
  const std::int64_t row = blockIdx.x;
  const int pairs = dim / 2;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * kBlock;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.y) * kBlock + threadIdx.x;
       i < heads * pairs; i += step) {
    const std::int64_t head = i / pairs;
    const int at = static_cast<int>(i % pairs);
    const float* source = x + row * row_stride + head * head_dim + 2 * at;
    const float low = 2 * at < head_dim ? source[0] : 0.0F;
    const float high = 2 * at + 1 < head_dim ? source[1] : 0.0F;
    out[(head * rows + row) * pairs + at] = ptx::pack_bf16(low, high);
  }
}

Tensor rounded_heads(OpContext& ctx, ConstTensorView x, std::int64_t dim) {
  Tensor out = empty_tensor(ctx.device, {x.dim(1), x.dim(0), dim}, DType::kBF16);
  launch("attention", ctx, x, row_grid(x.dim(0), x.dim(1) * dim / 2), dim3(kBlock),
         round_heads_kernel, static_cast<std::uint32_t*>(out.view().data), x.f32(), x.stride(0),
         x.dim(0), x.dim(1), static_cast<int>(x.dim(2)), static_cast<int>(dim));
  return out;
}

}  // namespace

void attention_bf16(OpContext& ctx, TensorView out, ConstTensorView q, ConstTensorView k,
                    ConstTensorView v, bool causal, float scale) {
  const std::int64_t dim = padded_head_dim(q.dim(2));
  if (dim == 0) {
    throw InternalError("attention: bf16 on CUDA takes head_dim up to 128, got " +
                        std::to_string(q.dim(2)));
  }
  Tensor q_rounded = rounded_heads(ctx, q, dim);
  Tensor k_rounded = rounded_heads(ctx, k, dim);
  Tensor v_rounded = rounded_heads(ctx, v, dim);
  attention_bf16_rounded(ctx, out, q_rounded.view(), k_rounded.view(), v_rounded.view(), causal,
                         scale);
}

void attention_bf16_rounded(OpContext& ctx, TensorView out, ConstTensorView q, ConstTensorView k,
                            ConstTensorView v, bool causal, float scale) {
  FlashArguments args = flash_output(out);
  args.q = static_cast<const unsigned char*>(q.data);
  args.k = static_cast<const unsigned char*>(k.data);
  args.v = static_cast<const unsigned char*>(v.data);
  args.kv_rows = k.dim(1);
  args.heads_per_kv = q.dim(0) / k.dim(0);
  args.scale = scale;
  args.causal = causal;
  launch_flash_padded<Bf16Attention>(ctx, out, q.dim(2), args);
}

}  // namespace miniacc::ops::cuda
