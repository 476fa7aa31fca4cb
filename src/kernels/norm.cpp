#include "kernels/norm.h"

#include "kernels/contract.h"
#include "kernels/cpu/ops.h"
#include "kernels/cuda/ops.h"
#include "kernels/dispatch.h"

namespace miniacc::ops {

void rms_norm(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
              float eps) {
  const int rank = x.shape.rank();
  MINIACC_REQUIRE(rank == 2 || rank == 3, "rms_norm: x has rank 2 or 3");
  MINIACC_REQUIRE(out.shape == x.shape && out.dtype == DType::kF32 && x.dtype == DType::kF32,
                  "rms_norm: out must look like x, f32");
  MINIACC_REQUIRE(x.stride(rank - 1) == 1 && out.stride(rank - 1) == 1,
                  "rms_norm: last dim must be contiguous");
  MINIACC_REQUIRE(
      weight.empty() || (weight.shape == Shape({x.shape.back()}) && weight.is_contiguous()),
      "rms_norm: weight is [hidden]");
  MINIACC_REQUIRE(all_f32_on(out.device, {out, x, weight}), "rms_norm: f32 on one device");
  MINIACC_DISPATCH(rms_norm, ctx, out, x, weight, eps);
}

void modulated_rms_norm(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                        ConstTensorView shift, ConstTensorView scale, ConstTensorView index,
                        float eps) {
  MINIACC_REQUIRE(
      x.shape.rank() == 2 && out.shape == x.shape && x.is_contiguous() && out.is_contiguous(),
      "modulated_rms_norm: x and out are contiguous matrices of one shape");
  MINIACC_REQUIRE(weight.shape == Shape({x.dim(1)}), "modulated_rms_norm: weight is [hidden]");
  MINIACC_REQUIRE(shift.shape == scale.shape && shift.shape.rank() == 2 &&
                      shift.dim(1) == x.dim(1) && shift.stride(1) == 1 && scale.stride(1) == 1,
                  "modulated_rms_norm: shift and scale are [table_rows, hidden]");
  MINIACC_REQUIRE(index.shape == Shape({x.dim(0)}) && index.dtype == DType::kI32,
                  "modulated_rms_norm: index is [rows] i32");
  MINIACC_REQUIRE(
      all_f32_on(out.device, {out, x, weight, shift, scale}) && all_on(out.device, {index}),
      "modulated_rms_norm: f32 on one device");
  MINIACC_REQUIRE(index.is_contiguous() && weight.is_contiguous(),
                  "modulated_rms_norm: index and weight are contiguous");
  MINIACC_DISPATCH(modulated_rms_norm, ctx, out, x, weight, shift, scale, index, eps);
}

void layer_norm(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                ConstTensorView bias, float eps) {
  MINIACC_REQUIRE(
      x.shape.rank() == 2 && out.shape == x.shape && x.is_contiguous() && out.is_contiguous(),
      "layer_norm: x and out are contiguous matrices of one shape");
  MINIACC_REQUIRE(weight.shape == Shape({x.dim(1)}) && bias.shape == weight.shape,
                  "layer_norm: weight and bias are [hidden]");
  MINIACC_REQUIRE(all_f32_on(out.device, {out, x, weight, bias}), "layer_norm: f32 on one device");
  MINIACC_REQUIRE(weight.is_contiguous() && bias.is_contiguous(),
                  "layer_norm: weight and bias are contiguous");
  MINIACC_DISPATCH(layer_norm, ctx, out, x, weight, bias, eps);
}

}  // namespace miniacc::ops
