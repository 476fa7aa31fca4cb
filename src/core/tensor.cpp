#include "core/tensor.h"

#include <utility>

namespace miniacc {

Tensor::Tensor(Buffer buffer, const Shape& shape, DType dtype, DeviceId device)
    : buffer_(std::move(buffer)), shape_(shape), dtype_(dtype), device_(device) {
  const auto bytes = storage_bytes(dtype, shape.num_elements());
  MINIACC_REQUIRE(bytes && *bytes <= buffer_.size_bytes(),
                  "tensor: buffer too small for its shape");
}

Tensor Tensor::reshaped(const Shape& shape) && {
  MINIACC_REQUIRE(shape.num_elements() == shape_.num_elements(),
                  "reshaped: number of elements differs");
  return {std::move(buffer_), shape, dtype_, device_};
}

TensorView Tensor::view() { return {buffer_.data(), shape_, dtype_, device_}; }

ConstTensorView Tensor::view() const { return {buffer_.data(), shape_, dtype_, device_}; }

std::span<float> Tensor::f32() {
  MINIACC_REQUIRE(device_.kind == DeviceKind::kCpu, "tensor: not on the CPU");
  return {view().f32(), static_cast<std::size_t>(shape_.num_elements())};
}

std::span<const float> Tensor::f32() const {
  MINIACC_REQUIRE(device_.kind == DeviceKind::kCpu, "tensor: not on the CPU");
  return {view().f32(), static_cast<std::size_t>(shape_.num_elements())};
}

}  // namespace miniacc
