#include "kernels/rounded.h"

#include "kernels/contract.h"
#include "kernels/cpu/ops.h"
#include "kernels/cuda/ops.h"
#include "kernels/dispatch.h"

namespace miniacc::ops {
namespace {

void require_rounded(TensorView out, ConstTensorView like, std::int64_t columns_a_value) {
  MINIACC_REQUIRE(like.shape.rank() == 2 && like.dim(1) % 2 == 0 && like.stride(1) == 1,
                  "rounded rows: the source is [rows, k], k even, values of a row contiguous");
  MINIACC_REQUIRE(out.shape == Shape({like.dim(0), columns_a_value * like.dim(1)}) &&
                      out.dtype == DType::kBF16 && out.is_contiguous(),
                  "rounded rows: out is [rows, k] bf16, contiguous");
}

}  // namespace

void rms_norm_rounded(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                      float eps) {
  require_rounded(out, x, 1);
  MINIACC_REQUIRE(x.is_contiguous() && weight.shape == Shape({x.dim(1)}) && weight.is_contiguous(),
                  "rms_norm_rounded: x contiguous, weight [k]");
  MINIACC_REQUIRE(all_f32_on(out.device, {x, weight}), "rms_norm_rounded: f32 on one device");
  MINIACC_DISPATCH(rms_norm_rounded, ctx, out, x, weight, eps);
}

void silu_mul_rounded(OpContext& ctx, TensorView out, ConstTensorView gate, ConstTensorView value) {
  require_rounded(out, gate, 1);
  MINIACC_REQUIRE(value.shape == gate.shape && value.stride(1) == 1 && gate.stride(0) % 2 == 0 &&
                      value.stride(0) % 2 == 0,
                  "silu_mul_rounded: gate and value have one shape and even strides");
  MINIACC_REQUIRE(all_f32_on(out.device, {gate, value}), "silu_mul_rounded: f32 on one device");
  MINIACC_DISPATCH(silu_mul_rounded, ctx, out, gate, value);
}

void split_rows(OpContext& ctx, TensorView out, ConstTensorView x, SplitSide side) {
  require_rounded(out, x, 3);
  MINIACC_REQUIRE(x.is_contiguous() && all_f32_on(out.device, {x}),
                  "split_rows: x is f32, contiguous, on out's device");
  MINIACC_DISPATCH(split_rows, ctx, out, x, side);
}

void linear_rounded(OpContext& ctx, TensorView out, ConstTensorView x, const WeightMatrix& w,
                    ConstTensorView bias) {
  MINIACC_REQUIRE(x.shape.rank() == 2 && x.dtype == DType::kBF16 && x.is_contiguous(),
                  "linear_rounded: x is [rows, k] bf16, contiguous");
  MINIACC_REQUIRE(w.values.shape.rank() == 2 && w.values.dtype == DType::kBF16 &&
                      w.values.is_contiguous() && w.values.dim(1) == x.dim(1) && w.low_rank.empty(),
                  "linear_rounded: w is [n, k] bf16 without low_rank");
  MINIACC_REQUIRE(out.shape == Shape({x.dim(0), w.values.dim(0)}) && out.stride(1) == 1,
                  "linear_rounded: out is [rows, n]");
  MINIACC_REQUIRE(bias.empty() || (bias.shape == Shape({w.values.dim(0)}) && bias.is_contiguous()),
                  "linear_rounded: bias is [n] or empty");
  MINIACC_REQUIRE(all_f32_on(out.device, {out, bias}) && all_on(out.device, {x, w.values}),
                  "linear_rounded: on one device");
  MINIACC_DISPATCH(linear_rounded, ctx, out, x, w, bias);
}

}  // namespace miniacc::ops
