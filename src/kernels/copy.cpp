#include "kernels/copy.h"

#include <utility>

#include "kernels/contract.h"
#include "kernels/cpu/ops.h"
#include "kernels/cuda/ops.h"
#include "kernels/dispatch.h"

namespace miniacc {
namespace ops {

void copy(OpContext& ctx, TensorView out, ConstTensorView x) {
  MINIACC_REQUIRE(out.shape == x.shape && out.dtype == x.dtype, "copy: one shape and one dtype");
  MINIACC_REQUIRE(out.is_contiguous() && x.is_contiguous(), "copy: contiguous views");
  MINIACC_REQUIRE(out.device != x.device || !may_overlap(out, x), "copy: out must not alias x");
  if (out.num_elements() == 0) {
    return;
  }
  const bool on_cuda = out.device.kind == DeviceKind::kCuda || x.device.kind == DeviceKind::kCuda;
  MINIACC_REQUIRE(!on_cuda || kHasCuda, "copy: no backend for CUDA");
  if constexpr (kHasCuda) {
    if (on_cuda) {
      cuda::copy(ctx, out, x);
      return;
    }
  }
  cpu::copy(ctx, out, x);
}

void fill_zero(OpContext& ctx, TensorView x) {
  MINIACC_REQUIRE(x.is_contiguous() && !is_block_type(x.dtype),
                  "fill_zero: contiguous, of a plain dtype");
  if (x.num_elements() == 0) {
    return;
  }
  MINIACC_DISPATCH(fill_zero, ctx, x);
}

void divide(OpContext& ctx, TensorView x, float divisor) {
  MINIACC_REQUIRE(x.dtype == DType::kF32 && x.is_contiguous(), "divide: f32, contiguous");
  MINIACC_DISPATCH(divide, ctx, x, divisor);
}

bool all_finite(OpContext& ctx, ConstTensorView x) {
  MINIACC_REQUIRE(x.dtype == DType::kF32 && x.is_contiguous(), "all_finite: f32, contiguous");
  const bool on_cuda = x.device.kind == DeviceKind::kCuda;
  MINIACC_REQUIRE(!on_cuda || kHasCuda, "all_finite: no backend for CUDA");
  if (x.num_elements() == 0) {
    return true;
  }
  if constexpr (kHasCuda) {
    if (on_cuda) {
      return cuda::all_finite(ctx, x);
    }
  }
  return cpu::all_finite(ctx, x);
}

}  // namespace ops

Tensor to_device(OpContext& ctx, Tensor tensor) {
  if (tensor.device() == ctx.device.id()) {
    return tensor;
  }
  return on_device(ctx, std::as_const(tensor).view()).storage;
}

Tensor to_host(OpContext& ctx, Tensor tensor) {
  if (tensor.device().kind == DeviceKind::kCpu) {
    return tensor;
  }
  return on_host(ctx, std::as_const(tensor).view()).storage;
}

Placed on_device(OpContext& ctx, ConstTensorView view) {
  if (view.device == ctx.device.id()) {
    return {.view = view};
  }
  Tensor copy = empty_tensor(ctx.device, view.shape, view.dtype);
  ops::copy(ctx, copy.view(), view);
  const ConstTensorView placed = copy.view();
  return {std::move(copy), placed};
}

Placed on_host(OpContext& ctx, ConstTensorView view) {
  if (view.device.kind == DeviceKind::kCpu) {
    return {.view = view};
  }
  Device& host = ctx.host_device();
  MINIACC_REQUIRE(host.id().kind == DeviceKind::kCpu, "on_host: the context names host memory");
  Tensor copy = empty_tensor(host, view.shape, view.dtype);
  ops::copy(ctx, copy.view(), view);
  const ConstTensorView placed = copy.view();
  return {std::move(copy), placed};
}

}  // namespace miniacc
