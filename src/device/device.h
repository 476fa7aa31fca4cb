#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor.h"

namespace miniacc {

/// Memory of one device under one hard ceiling. Thread-safe. Outlives every Buffer it hands out.
class Device : public MemoryOwner {
 public:
  [[nodiscard]] virtual DeviceId id() const = 0;

  /// At least `bytes` bytes, 64-byte aligned, uninitialised. kOutOfMemory names the request, what
  /// is in use and the ceiling.
  [[nodiscard]] virtual Result<Buffer> allocate(std::size_t bytes) = 0;
  [[nodiscard]] virtual std::size_t bytes_in_use() const = 0;
  [[nodiscard]] virtual std::size_t peak_bytes() const = 0;
};

/// Uninitialised contiguous tensor; the memory plan has made sure that it fits. Throws
/// ErrorException(kOutOfMemory) where it does not.
[[nodiscard]] Tensor empty_tensor(Device& device, const Shape& shape, DType dtype = DType::kF32);
[[nodiscard]] Result<Tensor> try_empty_tensor(Device& device, const Shape& shape, DType dtype);

}  // namespace miniacc
