#include "kernels/linear.h"

#include "kernels/contract.h"
#include "kernels/cpu/ops.h"
#include "kernels/cuda/ops.h"
#include "kernels/dispatch.h"
#include "kernels/low_rank.h"

namespace miniacc::ops {

void linear(OpContext& ctx, TensorView out, ConstTensorView x, const WeightMatrix& w,
            ConstTensorView bias) {
  MINIACC_REQUIRE(x.shape.rank() == 2 && out.shape.rank() == 2 && w.values.shape.rank() == 2,
                  "linear: x, out and w are matrices");
  MINIACC_REQUIRE(
      out.dim(0) == x.dim(0) && out.dim(1) == w.values.dim(0) && x.dim(1) == w.values.dim(1),
      "linear: out [rows, n] = x [rows, k] · w [n, k]");
  MINIACC_REQUIRE(x.dtype == DType::kF32 && out.dtype == DType::kF32, "linear: x and out are f32");
  MINIACC_REQUIRE(x.stride(1) == 1 && out.stride(1) == 1, "linear: rows must be contiguous");
  MINIACC_REQUIRE(w.values.is_contiguous(), "linear: w must be contiguous");
  MINIACC_REQUIRE(w.values.dtype == DType::kF32 || w.values.dtype == DType::kBF16 ||
                      w.values.dtype == DType::kI8,
                  "linear: w is f32, bf16 or i8");
  MINIACC_REQUIRE((w.values.dtype == DType::kI8) == !w.row_scale.empty(),
                  "linear: i8 weights, and only they, have row scales");
  MINIACC_REQUIRE(w.row_scale.empty() || (w.row_scale.shape == Shape({w.values.dim(0)}) &&
                                          w.row_scale.is_contiguous()),
                  "linear: row_scale is [n]");
  MINIACC_REQUIRE(bias.empty() || (bias.shape == Shape({w.values.dim(0)}) && bias.is_contiguous()),
                  "linear: bias is [n]");
  MINIACC_REQUIRE(x.dim(1) > 0, "linear: at least one input column");
  MINIACC_REQUIRE(
      all_f32_on(out.device, {out, x, w.row_scale, bias}) && all_on(out.device, {w.values}),
      "linear: row_scale and bias are f32, everything is on one device");
  MINIACC_REQUIRE(w.rotation_group == 0 ||
                      (w.values.dtype == DType::kI8 && is_rotation_group(w.rotation_group) &&
                       x.dim(1) % w.rotation_group == 0),
                  "linear: only i8 weights are rotated, over whole groups of a power of 4");
  MINIACC_REQUIRE(!may_overlap(out, x), "linear: out must not alias x");
  if (out.dim(0) == 0 || out.dim(1) == 0) {
    return;
  }
  MINIACC_DISPATCH(linear, ctx, out, x, w, bias);
  add_low_rank(ctx, out, x, w.low_rank);
}

void quantize_rows(OpContext& ctx, TensorView out, TensorView scale, ConstTensorView x) {
  MINIACC_REQUIRE(x.shape.rank() == 2 && out.shape == x.shape, "quantize_rows: out looks like x");
  MINIACC_REQUIRE(out.dtype == DType::kI8 && x.dtype == DType::kF32 && scale.dtype == DType::kF32,
                  "quantize_rows: f32 to i8 with f32 scales");
  MINIACC_REQUIRE(scale.shape == Shape({x.dim(0)}), "quantize_rows: scale is [rows]");
  MINIACC_REQUIRE(x.is_contiguous() && out.is_contiguous(), "quantize_rows: contiguous");
  MINIACC_REQUIRE(scale.is_contiguous() && all_on(out.device, {scale, x}),
                  "quantize_rows: scale is contiguous, everything is on one device");
  MINIACC_DISPATCH(quantize_rows, ctx, out, scale, x);
}

void rotate_rows(OpContext& ctx, TensorView x, std::int64_t group) {
  MINIACC_REQUIRE(x.shape.rank() == 2 && x.dtype == DType::kF32 && x.is_contiguous(),
                  "rotate_rows: x is a contiguous f32 matrix");
  MINIACC_REQUIRE(is_rotation_group(group), "rotate_rows: group is a power of 4");
  MINIACC_REQUIRE(x.dim(1) % group == 0, "rotate_rows: columns are whole groups");
  MINIACC_DISPATCH(rotate_rows, ctx, x, group);
}

}  // namespace miniacc::ops
