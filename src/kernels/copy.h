#pragma once

#include <span>
#include <type_traits>

#include "kernels/op_context.h"

namespace miniacc {
namespace ops {

/// out = x, inside one device or between the host and a CUDA device.
///   out, x  one shape and dtype, contiguous; must not overlap
/// Inside a CUDA device the copy is put into ctx.stream. With the host on one side the call returns
/// when the copy, and with it all earlier work of ctx.stream, is done.
void copy(OpContext& ctx, TensorView out, ConstTensorView x);

/// x = 0.   x contiguous, of a plain dtype.
void fill_zero(OpContext& ctx, TensorView x);

/// x /= divisor.   x f32, contiguous.
void divide(OpContext& ctx, TensorView x, float divisor);

/// True when no value is NaN or infinite.   x f32, contiguous. On CUDA the host waits for it.
[[nodiscard]] bool all_finite(OpContext& ctx, ConstTensorView x);

}  // namespace ops

/// The tensor on ctx.device: itself when it is there, otherwise a copy.
[[nodiscard]] Tensor to_device(OpContext& ctx, Tensor tensor);
/// The tensor in host memory: itself when it is there, otherwise a copy on ctx.host_device().
[[nodiscard]] Tensor to_host(OpContext& ctx, Tensor tensor);

/// A view of the same values on another device, with the memory that the copy took, if one was
/// made. Not longer alive than what it was made from.
struct Placed {
  Tensor storage = {};
  ConstTensorView view = {};
};
[[nodiscard]] Placed on_device(OpContext& ctx, ConstTensorView view);
[[nodiscard]] Placed on_host(OpContext& ctx, ConstTensorView view);

/// A tensor on ctx.device that holds these values of the host.
template <typename T>
[[nodiscard]] Tensor upload(OpContext& ctx, std::span<const T> values, const Shape& shape) {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, std::int32_t>);
  constexpr DType kType = std::is_same_v<T, float> ? DType::kF32 : DType::kI32;
  MINIACC_REQUIRE(static_cast<std::int64_t>(values.size()) == shape.num_elements(),
                  "upload: as many values as the shape has");
  Tensor tensor = empty_tensor(ctx.device, shape, kType);
  ops::copy(ctx, tensor.view(), ConstTensorView(values.data(), shape, kType));
  return tensor;
}

}  // namespace miniacc
