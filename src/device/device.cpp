#include "device/device.h"

#include <fmt/format.h>

namespace miniacc {

Result<Tensor> try_empty_tensor(Device& device, const Shape& shape, DType dtype) {
  const auto bytes = storage_bytes(dtype, shape.num_elements());
  if (!bytes) {
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("a {} tensor of shape {} has no size that fits memory",
                            dtype_name(dtype), shape.to_string()));
  }
  MINIACC_ASSIGN(Buffer buffer, device.allocate(*bytes));
  return Tensor(std::move(buffer), shape, dtype, device.id());
}

Tensor empty_tensor(Device& device, const Shape& shape, DType dtype) {
  auto tensor = try_empty_tensor(device, shape, dtype);
  if (!tensor) {
    throw ErrorException(std::move(tensor).error());
  }
  return *std::move(tensor);
}

}  // namespace miniacc
