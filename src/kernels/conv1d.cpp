#include "kernels/conv1d.h"

#include "kernels/contract.h"
#include "kernels/cpu/ops.h"
#include "kernels/cuda/ops.h"
#include "kernels/dispatch.h"

namespace miniacc::ops {
namespace {

void require_batches(const ConstTensorView& out, const ConstTensorView& x,
                     const ConstTensorView& weight, const ConstTensorView& bias,
                     const Conv1dOptions& options) {
  MINIACC_REQUIRE(x.shape.rank() == 3 && out.shape.rank() == 3 && weight.shape.rank() == 3,
                  "conv1d: x, out [batch, channels, length], weight of rank 3");
  MINIACC_REQUIRE(x.is_contiguous() && out.is_contiguous() && weight.is_contiguous(),
                  "conv1d: contiguous");
  MINIACC_REQUIRE(x.dim(0) == out.dim(0), "conv1d: batch");
  MINIACC_REQUIRE(all_f32_on(out.device, {out, x, weight, bias}), "conv1d: f32 on one device");
  MINIACC_REQUIRE(!may_overlap(out, x), "conv1d: out must not alias x");
  MINIACC_REQUIRE(bias.empty() || bias.shape == Shape({out.dim(1)}), "conv1d: bias is [out]");
  MINIACC_REQUIRE(options.stride > 0 && options.dilation > 0 && options.padding >= 0,
                  "conv1d: stride and dilation are positive, padding is not negative");
  MINIACC_REQUIRE(weight.dim(2) > 0, "conv1d: at least one tap");
}

}  // namespace

void conv1d(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
            ConstTensorView bias, const Conv1dOptions& options) {
  require_batches(out, x, weight, bias, options);
  MINIACC_REQUIRE(weight.dim(0) == out.dim(1) && weight.dim(1) == x.dim(1),
                  "conv1d: weight is [out, in, kernel]");
  const std::int64_t span = options.dilation * (weight.dim(2) - 1) + 1;
  MINIACC_REQUIRE(x.dim(2) + 2 * options.padding >= span, "conv1d: x is shorter than the kernel");
  MINIACC_REQUIRE(out.dim(2) == (x.dim(2) + 2 * options.padding - span) / options.stride + 1,
                  "conv1d: output length");
  MINIACC_DISPATCH(conv1d, ctx, out, x, weight, bias, options);
}

void conv_transpose1d(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                      ConstTensorView bias, const Conv1dOptions& options) {
  require_batches(out, x, weight, bias, options);
  MINIACC_REQUIRE(weight.dim(0) == x.dim(1) && weight.dim(1) == out.dim(1),
                  "conv_transpose1d: weight is [in, out, kernel]");
  MINIACC_REQUIRE(x.dim(2) > 0, "conv_transpose1d: x is not empty");
  MINIACC_REQUIRE(options.dilation == 1, "conv_transpose1d: dilation must be 1");
  MINIACC_REQUIRE(
      out.dim(2) == (x.dim(2) - 1) * options.stride - 2 * options.padding + weight.dim(2),
      "conv_transpose1d: output length");
  MINIACC_DISPATCH(conv_transpose1d, ctx, out, x, weight, bias, options);
}

}  // namespace miniacc::ops
