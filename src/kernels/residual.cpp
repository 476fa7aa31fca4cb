#include "kernels/residual.h"

#include "kernels/contract.h"
#include "kernels/cpu/ops.h"
#include "kernels/cuda/ops.h"
#include "kernels/dispatch.h"

namespace miniacc::ops {

void add(OpContext& ctx, TensorView h, ConstTensorView x) {
  MINIACC_REQUIRE(h.shape == x.shape && h.is_contiguous() && x.is_contiguous(),
                  "add: h and x are contiguous and of one shape");
  MINIACC_REQUIRE(all_f32_on(h.device, {h, x}), "add: f32 on one device");
  MINIACC_DISPATCH(add, ctx, h, x);
}

void gated_add(OpContext& ctx, TensorView h, ConstTensorView x, ConstTensorView gate,
               ConstTensorView index) {
  MINIACC_REQUIRE(
      h.shape.rank() == 2 && h.shape == x.shape && h.is_contiguous() && x.is_contiguous(),
      "gated_add: h and x are contiguous matrices of one shape");
  MINIACC_REQUIRE(gate.shape.rank() == 2 && gate.dim(1) == h.dim(1) && gate.stride(1) == 1,
                  "gated_add: gate is [table_rows, hidden]");
  MINIACC_REQUIRE(index.empty() || (index.shape == Shape({h.dim(0)}) && index.dtype == DType::kI32),
                  "gated_add: index is [rows] i32");
  MINIACC_REQUIRE(all_f32_on(h.device, {h, x, gate}) && all_on(h.device, {index}),
                  "gated_add: f32 on one device");
  MINIACC_REQUIRE(index.empty() || index.is_contiguous(), "gated_add: index is contiguous");
  MINIACC_REQUIRE(!index.empty() || gate.dim(0) > 0, "gated_add: gate has a row");
  MINIACC_DISPATCH(gated_add, ctx, h, x, gate, index);
}

}  // namespace miniacc::ops
