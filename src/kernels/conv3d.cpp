#include "kernels/conv3d.h"

#include "kernels/contract.h"
#include "kernels/cpu/ops.h"
#include "kernels/cuda/ops.h"
#include "kernels/dispatch.h"

namespace miniacc::ops {
namespace {

std::int64_t output_size(std::int64_t size, std::int64_t padding, std::int64_t kernel,
                         std::int64_t stride) {
  return (size + padding - kernel) / stride + 1;
}

}  // namespace

void conv3d(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
            ConstTensorView bias, const Conv3dOptions& options) {
  MINIACC_REQUIRE(x.shape.rank() == 5 && out.shape.rank() == 5 && weight.shape.rank() == 5,
                  "conv3d: x, out [batch, frames, height, width, channels], weight of rank 5");
  MINIACC_REQUIRE(x.is_contiguous() && out.is_contiguous() && weight.is_contiguous(),
                  "conv3d: contiguous");
  MINIACC_REQUIRE(x.num_elements() > 0 && weight.num_elements() > 0, "conv3d: x is not empty");
  MINIACC_REQUIRE(options.stride_t > 0 && options.stride_hw > 0 && options.past_frames >= 0 &&
                      options.pad_before >= 0 && options.pad_after >= 0,
                  "conv3d: strides are positive, padding is not negative");
  MINIACC_REQUIRE(options.past_frames < weight.dim(2),
                  "conv3d: past_frames is smaller than the kernel");
  const std::int64_t padding = options.pad_before + options.pad_after;
  for (int axis = 2; axis < 4; ++axis) {
    MINIACC_REQUIRE(options.pad_before < x.dim(axis) && options.pad_after < x.dim(axis),
                    "conv3d: an axis is longer than its reflected padding");
    MINIACC_REQUIRE(x.dim(axis) + padding >= weight.dim(axis + 1),
                    "conv3d: x is smaller than the kernel");
    MINIACC_REQUIRE(
        out.dim(axis) == output_size(x.dim(axis), padding, weight.dim(axis + 1), options.stride_hw),
        "conv3d: output height and width");
  }
  MINIACC_REQUIRE(x.dim(1) + options.past_frames >= weight.dim(2),
                  "conv3d: fewer frames than the kernel spans");
  MINIACC_REQUIRE(
      out.dim(0) == x.dim(0) &&
          out.dim(1) == output_size(x.dim(1), options.past_frames, weight.dim(2), options.stride_t),
      "conv3d: output batch and frames");
  MINIACC_REQUIRE(weight.dim(0) == out.dim(4) && weight.dim(1) == x.dim(4),
                  "conv3d: weight is [out, in, kernel_t, kernel_h, kernel_w]");
  MINIACC_REQUIRE(bias.empty() || (bias.shape == Shape({out.dim(4)}) && bias.is_contiguous()),
                  "conv3d: bias is [out]");
  const NormalizedInput& normalize = options.normalize;
  const Shape coefficients({x.dim(0) * x.dim(1), x.dim(4)});
  MINIACC_REQUIRE(normalize.scale.empty() == normalize.shift.empty() &&
                      (normalize.scale.empty() ||
                       (normalize.scale.shape == coefficients && normalize.scale.is_contiguous() &&
                        normalize.shift.shape == coefficients && normalize.shift.is_contiguous())),
                  "conv3d: scale and shift are [batch·frames, in], both or neither");
  MINIACC_REQUIRE(all_f32_on(out.device, {out, x, weight, bias, normalize.scale, normalize.shift}),
                  "conv3d: f32 on one device");
  MINIACC_REQUIRE(!may_overlap(out, x), "conv3d: out must not alias x");
  MINIACC_DISPATCH(conv3d, ctx, out, x, weight, bias, options);
}

}  // namespace miniacc::ops
