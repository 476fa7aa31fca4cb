#include "kernels/low_rank.h"

#include "kernels/contract.h"
#include "kernels/cpu/ops.h"
#include "kernels/cuda/ops.h"
#include "kernels/dispatch.h"

namespace miniacc::ops {
namespace {

void require_delta(TensorView out, ConstTensorView x, const LowRankDelta& delta) {
  const ConstTensorView down = delta.down.view();
  const ConstTensorView up = delta.up.view();
  MINIACC_REQUIRE(x.shape.rank() == 2 && out.shape.rank() == 2 && down.shape.rank() == 2 &&
                      up.shape.rank() == 2,
                  "add_low_rank: x, out, down and up are matrices");
  MINIACC_REQUIRE(
      down.dim(1) == x.dim(1) && up.dim(1) == down.dim(0) && down.dim(0) > 0 && x.dim(1) > 0,
      "add_low_rank: down is [rank, k] and up [num_rows, rank]");
  MINIACC_REQUIRE(
      out.dim(0) == x.dim(0) && delta.first_row >= 0 && delta.first_row <= out.dim(1) - up.dim(0),
      "add_low_rank: the delta's rows are among out's columns");
  MINIACC_REQUIRE(
      x.dtype == DType::kF32 && out.dtype == DType::kF32 && x.stride(1) == 1 && out.stride(1) == 1,
      "add_low_rank: x and out are f32 with contiguous rows");
  MINIACC_REQUIRE(down.dtype == up.dtype &&
                      (down.dtype == DType::kF32 || down.dtype == DType::kBF16) &&
                      down.is_contiguous() && up.is_contiguous(),
                  "add_low_rank: the factors are contiguous, both f32 or both bf16");
  MINIACC_REQUIRE(all_on(out.device, {x, down, up}), "add_low_rank: everything is on one device");
}

}  // namespace

void add_low_rank(OpContext& ctx, TensorView out, ConstTensorView x,
                  std::span<const LowRankDelta> deltas) {
  if (deltas.empty()) {
    return;
  }
  MINIACC_REQUIRE(!may_overlap(out, x), "add_low_rank: out must not alias x");
  for (const LowRankDelta& delta : deltas) {
    require_delta(out, x, delta);
  }
  if (out.dim(0) == 0) {
    return;
  }
  MINIACC_DISPATCH(add_low_rank, ctx, out, x, deltas);
}

void add_low_rank(OpContext& ctx, TensorView out, ConstTensorView x, const LowRankDelta& delta) {
  add_low_rank(ctx, out, x, std::span(&delta, 1));
}

}  // namespace miniacc::ops
