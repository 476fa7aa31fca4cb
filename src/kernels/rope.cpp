#include "kernels/rope.h"

#include "kernels/contract.h"
#include "kernels/cpu/ops.h"
#include "kernels/cuda/ops.h"
#include "kernels/dispatch.h"

namespace miniacc::ops {

void apply_rope(OpContext& ctx, TensorView x, ConstTensorView cos, ConstTensorView sin) {
  MINIACC_REQUIRE(x.shape.rank() == 3 && x.stride(2) == 1,
                  "apply_rope: x is [rows, heads, head_dim]");
  MINIACC_REQUIRE(cos.shape.rank() == 2 && cos.shape == sin.shape && cos.dim(0) == x.dim(0) &&
                      2 * cos.dim(1) <= x.dim(2) && cos.is_contiguous() && sin.is_contiguous(),
                  "apply_rope: cos and sin are [rows, n] with 2n <= head_dim");
  MINIACC_REQUIRE(all_f32_on(x.device, {x, cos, sin}), "apply_rope: f32 on one device");
  MINIACC_DISPATCH(apply_rope, ctx, x, cos, sin);
}

}  // namespace miniacc::ops
