#include "kernels/gelu.h"

#include "kernels/contract.h"
#include "kernels/cpu/ops.h"
#include "kernels/cuda/ops.h"
#include "kernels/dispatch.h"

namespace miniacc::ops {

void gelu(OpContext& ctx, TensorView out, ConstTensorView x, GeluForm form) {
  MINIACC_REQUIRE(out.shape == x.shape && out.is_contiguous() && x.is_contiguous(),
                  "gelu: out and x are contiguous and of one shape");
  MINIACC_REQUIRE(all_f32_on(out.device, {out, x}), "gelu: f32 on one device");
  MINIACC_DISPATCH(gelu, ctx, out, x, form);
}

}  // namespace miniacc::ops
