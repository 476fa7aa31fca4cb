#include "kernels/snake.h"

#include "kernels/contract.h"
#include "kernels/cpu/ops.h"
#include "kernels/cuda/ops.h"
#include "kernels/dispatch.h"

namespace miniacc::ops {

void snake(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView alpha) {
  MINIACC_REQUIRE(
      x.shape.rank() == 3 && out.shape == x.shape && x.is_contiguous() && out.is_contiguous(),
      "snake: x and out are contiguous [batch, channels, length]");
  MINIACC_REQUIRE(alpha.shape == Shape({x.dim(1)}) && alpha.is_contiguous(),
                  "snake: alpha is [channels]");
  MINIACC_REQUIRE(all_f32_on(out.device, {out, x, alpha}), "snake: f32 on one device");
  MINIACC_REQUIRE(out.data == x.data || !may_overlap(out, x), "snake: out is x or apart from it");
  if (x.num_elements() == 0) {
    return;
  }
  MINIACC_DISPATCH(snake, ctx, out, x, alpha);
}

void antialiased_snake_beta(OpContext& ctx, TensorView out, ConstTensorView x,
                            ConstTensorView alpha, ConstTensorView beta, ConstTensorView up_filter,
                            ConstTensorView down_filter) {
  MINIACC_REQUIRE(
      x.shape.rank() == 3 && out.shape == x.shape && x.is_contiguous() && out.is_contiguous(),
      "antialiased_snake_beta: x and out are contiguous [batch, channels, length]");
  MINIACC_REQUIRE(alpha.shape == Shape({x.dim(1)}) && beta.shape == alpha.shape,
                  "antialiased_snake_beta: alpha and beta are [channels]");
  MINIACC_REQUIRE(up_filter.shape == Shape({12}) && down_filter.shape == Shape({12}),
                  "antialiased_snake_beta: filters have 12 taps");
  MINIACC_REQUIRE(all_f32_on(out.device, {out, x, alpha, beta, up_filter, down_filter}),
                  "antialiased_snake_beta: f32 on one device");
  MINIACC_REQUIRE(alpha.is_contiguous() && beta.is_contiguous() && up_filter.is_contiguous() &&
                      down_filter.is_contiguous(),
                  "antialiased_snake_beta: parameters are contiguous");
  MINIACC_REQUIRE(!may_overlap(out, x), "antialiased_snake_beta: out must not alias x");
  if (x.num_elements() == 0) {
    return;
  }
  MINIACC_DISPATCH(antialiased_snake_beta, ctx, out, x, alpha, beta, up_filter, down_filter);
}

}  // namespace miniacc::ops
