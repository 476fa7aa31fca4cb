#include "kernels/group_norm.h"

#include "kernels/contract.h"
#include "kernels/cpu/ops.h"
#include "kernels/cuda/ops.h"
#include "kernels/dispatch.h"

namespace miniacc::ops {

void group_norm_coefficients(OpContext& ctx, TensorView scale, TensorView shift, ConstTensorView x,
                             ConstTensorView weight, ConstTensorView bias, std::int64_t num_groups,
                             float eps) {
  MINIACC_REQUIRE(x.shape.rank() == 3 && x.is_contiguous() && x.num_elements() > 0,
                  "group_norm_coefficients: x is [frames, positions, channels], not empty");
  MINIACC_REQUIRE(scale.shape == Shape({x.dim(0), x.dim(2)}) && scale.is_contiguous() &&
                      shift.shape == scale.shape && shift.is_contiguous(),
                  "group_norm_coefficients: scale and shift are [frames, channels]");
  MINIACC_REQUIRE(weight.shape == Shape({x.dim(2)}) && weight.is_contiguous() &&
                      bias.shape == weight.shape && bias.is_contiguous(),
                  "group_norm_coefficients: weight and bias are [channels]");
  MINIACC_REQUIRE(num_groups > 0 && x.dim(2) % num_groups == 0,
                  "group_norm_coefficients: channels are whole groups");
  MINIACC_REQUIRE(all_f32_on(scale.device, {scale, shift, x, weight, bias}),
                  "group_norm_coefficients: f32 on one device");
  MINIACC_REQUIRE(!may_overlap(scale, x) && !may_overlap(shift, x) && !may_overlap(scale, shift),
                  "group_norm_coefficients: scale and shift alias nothing");
  MINIACC_DISPATCH(group_norm_coefficients, ctx, scale, shift, x, weight, bias, num_groups, eps);
}

}  // namespace miniacc::ops
