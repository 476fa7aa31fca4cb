#include "kernels/fused.h"

#include "kernels/contract.h"
#include "kernels/cpu/ops.h"
#include "kernels/cuda/ops.h"
#include "kernels/dispatch.h"

namespace miniacc::ops {
namespace {

/// What all producers ask of their results; `like` is one of their inputs [rows, k].
void require_codes(TensorView out, TensorView scale, ConstTensorView like, std::int64_t group) {
  MINIACC_REQUIRE(like.shape.rank() == 2 && out.shape == like.shape,
                  "fused quantisation: out and its source are [rows, k]");
  MINIACC_REQUIRE(out.dtype == DType::kI8 && out.is_contiguous(),
                  "fused quantisation: out is i8, contiguous");
  MINIACC_REQUIRE(scale.shape == Shape({like.dim(0)}) && scale.is_contiguous(),
                  "fused quantisation: scale is [rows], contiguous");
  MINIACC_REQUIRE(like.dim(1) > 0, "fused quantisation: at least one column");
  MINIACC_REQUIRE(group == 0 || (is_rotation_group(group) && like.dim(1) % group == 0),
                  "fused quantisation: whole groups of a power of 4, or group 0");
}

}  // namespace

bool fits_fused_rows(DeviceKind device, std::int64_t columns, std::int64_t group) {
  if constexpr (kHasCuda) {
    if (device == DeviceKind::kCuda) {
      return cuda::fits_rotate_quantize(columns, group);
    }
  }
  return device == DeviceKind::kCpu;
}

void rotate_quantize_rows(OpContext& ctx, TensorView out, TensorView scale, ConstTensorView x,
                          std::int64_t group) {
  require_codes(out, scale, x, group);
  MINIACC_REQUIRE(x.stride(1) == 1, "rotate_quantize_rows: rows must be contiguous");
  MINIACC_REQUIRE(all_f32_on(out.device, {scale, x}), "rotate_quantize_rows: f32 on one device");
  MINIACC_DISPATCH(rotate_quantize_rows, ctx, out, scale, x, group);
}

void modulated_rms_norm_quantize(OpContext& ctx, TensorView out, TensorView scale,
                                 ConstTensorView x, ConstTensorView weight, ConstTensorView shift,
                                 ConstTensorView gain, ConstTensorView index, float eps,
                                 std::int64_t group) {
  require_codes(out, scale, x, group);
  MINIACC_REQUIRE(x.is_contiguous(), "modulated_rms_norm_quantize: x is contiguous");
  MINIACC_REQUIRE(weight.shape == Shape({x.dim(1)}) && weight.is_contiguous(),
                  "modulated_rms_norm_quantize: weight is [hidden], contiguous");
  MINIACC_REQUIRE(shift.shape == gain.shape && shift.shape.rank() == 2 &&
                      shift.dim(1) == x.dim(1) && shift.stride(1) == 1 && gain.stride(1) == 1,
                  "modulated_rms_norm_quantize: shift and gain are [table_rows, hidden]");
  MINIACC_REQUIRE(
      index.shape == Shape({x.dim(0)}) && index.dtype == DType::kI32 && index.is_contiguous(),
      "modulated_rms_norm_quantize: index is [rows] i32");
  MINIACC_REQUIRE(
      all_f32_on(out.device, {scale, x, weight, shift, gain}) && all_on(out.device, {index}),
      "modulated_rms_norm_quantize: f32 on one device");
  MINIACC_DISPATCH(modulated_rms_norm_quantize, ctx, out, scale, x, weight, shift, gain, index, eps,
                   group);
}

void silu_mul_quantize(OpContext& ctx, TensorView out, TensorView scale, ConstTensorView gate,
                       ConstTensorView value, std::int64_t group) {
  require_codes(out, scale, gate, group);
  MINIACC_REQUIRE(value.shape == gate.shape && gate.stride(1) == 1 && value.stride(1) == 1,
                  "silu_mul_quantize: gate and value have one shape and contiguous rows");
  MINIACC_REQUIRE(all_f32_on(out.device, {scale, gate, value}),
                  "silu_mul_quantize: f32 on one device");
  MINIACC_DISPATCH(silu_mul_quantize, ctx, out, scale, gate, value, group);
}

void linear_quantized(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView x_scale,
                      const WeightMatrix& w, ConstTensorView bias) {
  MINIACC_REQUIRE(x.shape.rank() == 2 && out.shape.rank() == 2 && w.values.shape.rank() == 2,
                  "linear_quantized: x, out and w are matrices");
  MINIACC_REQUIRE(
      out.dim(0) == x.dim(0) && out.dim(1) == w.values.dim(0) && x.dim(1) == w.values.dim(1),
      "linear_quantized: out [rows, n] = x [rows, k] · w [n, k]");
  MINIACC_REQUIRE(x.dtype == DType::kI8 && w.values.dtype == DType::kI8,
                  "linear_quantized: x and w are i8");
  MINIACC_REQUIRE(x.is_contiguous() && w.values.is_contiguous() && out.stride(1) == 1,
                  "linear_quantized: x and w are contiguous, rows of out too");
  MINIACC_REQUIRE(x_scale.shape == Shape({x.dim(0)}) && x_scale.is_contiguous(),
                  "linear_quantized: x_scale is [rows]");
  MINIACC_REQUIRE(w.row_scale.shape == Shape({w.values.dim(0)}) && w.row_scale.is_contiguous(),
                  "linear_quantized: row_scale is [n]");
  MINIACC_REQUIRE(bias.empty() || (bias.shape == Shape({w.values.dim(0)}) && bias.is_contiguous()),
                  "linear_quantized: bias is [n]");
  MINIACC_REQUIRE(x.dim(1) > 0, "linear_quantized: at least one input column");
  MINIACC_REQUIRE(w.low_rank.empty(),
                  "linear_quantized: side products need the activation as it was, not x");
  MINIACC_REQUIRE(all_f32_on(out.device, {out, x_scale, w.row_scale, bias}) &&
                      all_on(out.device, {x, w.values}),
                  "linear_quantized: f32 scales, bias and out, everything on one device");
  if (out.num_elements() == 0) {
    return;
  }
  MINIACC_DISPATCH(linear_quantized, ctx, out, x, x_scale, w, bias);
}

}  // namespace miniacc::ops
