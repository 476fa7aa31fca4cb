#include "kernels/low_rank.h"

#include "kernels/cuda/aligned_rows.cuh"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/matmul_tile.cuh"
#include "kernels/cuda/ops.h"

namespace miniacc::ops::cuda {
namespace {

// The first product has a rank's columns, the second few slabs of depth: a tile half as wide as the
// large one fits the first, and two blocks a multiprocessor hide the second's reads of out.
using RankShape = MatmulShape<128, 128, 2, 4, 4>;

/// bf16(factor · sum), the input of the second product.
struct RoundedEpilogue {
  std::uint16_t* data;
  std::int64_t columns;
  float factor;

  __device__ void store(std::int64_t row, std::int64_t column, float first, float second) const {
    const std::uint32_t packed = ptx::pack_bf16(first * factor, second * factor);
    std::uint16_t* target = data + row * columns + column;
    if (columns % 2 == 0) {
      *reinterpret_cast<std::uint32_t*>(target) = packed;
      return;
    }
    target[0] = static_cast<std::uint16_t>(packed);
    if (column + 1 < columns) {
      target[1] = static_cast<std::uint16_t>(packed >> 16);
    }
  }
};

/// out += sum.
struct AddEpilogue {
  OutputRows out;

  __device__ void store(std::int64_t row, std::int64_t column, float first, float second) const {
    const float* before = out.data + row * out.stride + column;
    out.store(row, column, before[0] + first,
              column + 1 < out.columns ? before[1] + second : second);
  }
};

template <typename Epilogue>
void multiply(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView w,
              const Epilogue& epilogue) {
  const AlignedRows a = aligned_rows(ctx, x);
  const AlignedRows b = aligned_rows(ctx, w);
  const MatmulOperands operands = {a.data,   b.data,   a.row_bytes, b.row_bytes,
                                   x.dim(0), w.dim(0), a.row_bytes};
  launch_matmul<Bf16Product, RankShape>("add_low_rank", ctx, out, operands, epilogue);
}

// Floor at rank r: 2·rows·r·(k + n) operations on the bf16 units, 2·rows·k bytes read in the first
// product and 8·rows·n moved in the second, which bounds it: out is read and written once more.
void add_bf16(OpContext& ctx, TensorView out, ConstTensorView rounded, const LowRankDelta& delta) {
  const std::int64_t rank = delta.down.shape()[0];
  Tensor inner = empty_tensor(ctx.device, {rounded.dim(0), rank}, DType::kBF16);
  multiply(ctx, inner.view(), rounded, delta.down.view(),
           RoundedEpilogue{inner.view().as<std::uint16_t>(), rank, delta.scale});
  multiply(ctx, out, inner.view(), delta.up.view(), AddEpilogue{output_rows(out)});
}

void add_f32(OpContext& ctx, TensorView out, ConstTensorView x, const LowRankDelta& delta) {
  Tensor inner = empty_tensor(ctx.device, {x.dim(0), delta.down.shape()[0]});
  matmul_f32(ctx, inner.view(), x, delta.down.view(), {}, {.factor = delta.scale});
  matmul_f32(ctx, out, inner.view(), delta.up.view(), {}, {.accumulate = true});
}

}  // namespace

void add_low_rank(OpContext& ctx, TensorView out, ConstTensorView x,
                  std::span<const LowRankDelta> deltas) {
  ctx.check_cancelled();
  Tensor rounded;  // x, once for all deltas that take it in bf16
  for (const LowRankDelta& delta : deltas) {
    const std::int64_t num_rows = delta.up.shape()[0];
    if (num_rows == 0) {
      continue;
    }
    const TensorView columns = out.narrow(1, delta.first_row, num_rows);
    if (delta.down.dtype() == DType::kF32) {
      add_f32(ctx, columns, x, delta);
      continue;
    }
    if (rounded.empty()) {
      rounded = round_rows_to_bf16(ctx, x);
    }
    add_bf16(ctx, columns, rounded.view(), delta);
  }
}

}  // namespace miniacc::ops::cuda
