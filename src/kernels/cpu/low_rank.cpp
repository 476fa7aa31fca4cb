#include <algorithm>
#include <dnnl.hpp>

#include "kernels/cpu/matmul.h"
#include "kernels/cpu/ops.h"

namespace miniacc::ops::cpu {
namespace {

using dnnl::memory;

/// The inner activation and the bf16 copy of the input exist for this many rows at a time.
constexpr std::int64_t kRowChunk = 512;

/// out {=, +=} x · weightsᵀ in the arithmetic of the factors.
void multiply(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weights,
              MatmulOutput output) {
  if (weights.dtype == DType::kF32) {
    matmul(ctx, out, memory::data_type::f32, x, memory::data_type::f32, weights,
           memory::data_type::f32, {}, output);
    return;
  }
  const Tensor rounded = round_rows_to_bf16(ctx, x);
  matmul(ctx, out, memory::data_type::f32, rounded.view(), memory::data_type::bf16, weights,
         memory::data_type::bf16, {}, output);
}

void add_one(OpContext& ctx, TensorView out, ConstTensorView x, const LowRankDelta& delta) {
  const std::int64_t rows = x.dim(0);
  const std::int64_t rank = delta.down.shape()[0];
  Tensor inner = empty_tensor(ctx.device, {std::min(rows, kRowChunk), rank});
  for (std::int64_t first = 0; first < rows; first += kRowChunk) {
    ctx.check_cancelled();
    const std::int64_t count = std::min(kRowChunk, rows - first);
    const TensorView t = inner.view().narrow(0, 0, count);
    multiply(ctx, t, x.narrow(0, first, count), delta.down.view(), MatmulOutput::kReplace);
    std::transform(t.f32(), t.f32() + count * rank, t.f32(),
                   [&](float value) { return value * delta.scale; });
    multiply(ctx, out.narrow(0, first, count), t, delta.up.view(), MatmulOutput::kAdd);
  }
}

}  // namespace

void add_low_rank(OpContext& ctx, TensorView out, ConstTensorView x,
                  std::span<const LowRankDelta> deltas) {
  for (const LowRankDelta& delta : deltas) {
    const std::int64_t num_rows = delta.up.shape()[0];
    if (num_rows > 0) {
      add_one(ctx, out.narrow(1, delta.first_row, num_rows), x, delta);
    }
  }
}

}  // namespace miniacc::ops::cpu
