#include "kernels/activation.h"

#include "kernels/contract.h"
#include "kernels/cpu/ops.h"
#include "kernels/cuda/ops.h"
#include "kernels/dispatch.h"

namespace miniacc::ops {

void silu_mul(OpContext& ctx, TensorView out, ConstTensorView gate, ConstTensorView value) {
  MINIACC_REQUIRE(out.shape.rank() == 2 && out.shape == gate.shape && gate.shape == value.shape,
                  "silu_mul: out, gate and value are matrices of one shape");
  MINIACC_REQUIRE(out.is_contiguous() && gate.stride(1) == 1 && value.stride(1) == 1,
                  "silu_mul: rows must be contiguous");
  MINIACC_REQUIRE(all_f32_on(out.device, {out, gate, value}), "silu_mul: f32 on one device");
  MINIACC_REQUIRE(!may_overlap(out, gate) && !may_overlap(out, value),
                  "silu_mul: out must not alias gate or value");
  MINIACC_DISPATCH(silu_mul, ctx, out, gate, value);
}

void silu(OpContext& ctx, TensorView out, ConstTensorView x) {
  MINIACC_REQUIRE(out.shape == x.shape && out.is_contiguous() && x.is_contiguous(),
                  "silu: out and x are contiguous and of one shape");
  MINIACC_REQUIRE(all_f32_on(out.device, {out, x}), "silu: f32 on one device");
  MINIACC_DISPATCH(silu, ctx, out, x);
}

}  // namespace miniacc::ops
