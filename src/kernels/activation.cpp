#include "kernels/activation.h"

#include "kernels/contract.h"
#include "kernels/cpu/ops.h"
#include "kernels/cuda/ops.h"
#include "kernels/dispatch.h"

namespace miniacc::ops {
namespace {

/// One view, or views without an element in common.
bool same_or_apart(const ConstTensorView& a, const ConstTensorView& b) {
  return (a.data == b.data && a.stride(0) == b.stride(0)) || !may_overlap(a, b);
}

}  // namespace

void silu_mul(OpContext& ctx, TensorView out, ConstTensorView gate, ConstTensorView value) {
  MINIACC_REQUIRE(out.shape.rank() == 2 && out.shape == gate.shape && gate.shape == value.shape,
                  "silu_mul: out, gate and value are matrices of one shape");
  MINIACC_REQUIRE(out.stride(1) == 1 && gate.stride(1) == 1 && value.stride(1) == 1,
                  "silu_mul: rows must be contiguous");
  MINIACC_REQUIRE(all_f32_on(out.device, {out, gate, value}), "silu_mul: f32 on one device");
  MINIACC_REQUIRE(same_or_apart(out, gate) && same_or_apart(out, value),
                  "silu_mul: out must be gate, or value, or not alias them");
  MINIACC_DISPATCH(silu_mul, ctx, out, gate, value);
}

void silu(OpContext& ctx, TensorView out, ConstTensorView x) {
  MINIACC_REQUIRE(out.shape == x.shape && out.is_contiguous() && x.is_contiguous(),
                  "silu: out and x are contiguous and of one shape");
  MINIACC_REQUIRE(all_f32_on(out.device, {out, x}), "silu: f32 on one device");
  MINIACC_DISPATCH(silu, ctx, out, x);
}

}  // namespace miniacc::ops
