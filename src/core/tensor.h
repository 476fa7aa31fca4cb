#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "core/dtype.h"
#include "core/error.h"
#include "core/shape.h"

namespace miniacc {

/// Where memory lives. A CUDA ordinal counts the visible devices.
enum class DeviceKind { kCpu, kCuda };
struct DeviceId {
  DeviceKind kind = DeviceKind::kCpu;
  int ordinal = 0;
  friend bool operator==(DeviceId, DeviceId) = default;
};

/// A view that does not own its memory: pointer, shape, strides (in elements), dtype, device.
/// Row-major and contiguous unless it was made by narrow(). An empty view (no data) stands for
/// "absent", e.g. a linear layer without bias.
template <typename Void>
struct BasicTensorView {
  Void* data = nullptr;
  Shape shape;
  std::array<std::int64_t, Shape::kMaxRank> strides{};
  DType dtype = DType::kF32;
  DeviceId device;

  BasicTensorView() = default;
  BasicTensorView(Void* memory, const Shape& dims, DType type, DeviceId where = {})
      : data(memory), shape(dims), dtype(type), device(where) {
    std::int64_t stride = 1;
    for (int axis = dims.rank() - 1; axis >= 0; --axis) {
      strides[static_cast<std::size_t>(axis)] = stride;
      stride *= dims[axis];
    }
  }
  /// A mutable view is usable wherever a const one is asked for.
  template <typename Other>
  requires(std::is_const_v<Void> && !std::is_const_v<Other>)
      BasicTensorView(const BasicTensorView<Other>& other)  // NOLINT(google-explicit-constructor)
      : data(other.data),
        shape(other.shape),
        strides(other.strides),
        dtype(other.dtype),
        device(other.device) {}

  [[nodiscard]] bool empty() const { return data == nullptr; }
  [[nodiscard]] std::int64_t dim(int axis) const { return shape[axis]; }
  [[nodiscard]] std::int64_t stride(int axis) const {
    return strides[static_cast<std::size_t>(axis)];
  }
  [[nodiscard]] std::int64_t num_elements() const { return shape.num_elements(); }

  [[nodiscard]] bool is_contiguous() const {
    std::int64_t expected = 1;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      if (shape[axis] != 1 && stride(axis) != expected) {
        return false;
      }
      expected *= shape[axis];
    }
    return true;
  }

  /// Elements [start, start + length) of one axis, sharing memory and strides. Plain dtypes only.
  [[nodiscard]] BasicTensorView narrow(int axis, std::int64_t start, std::int64_t length) const {
    MINIACC_REQUIRE(start >= 0 && length >= 0 && start <= shape[axis] - length,
                    "narrow: range outside the axis");
    MINIACC_REQUIRE(!is_block_type(dtype), "narrow: block types share bytes between elements");
    BasicTensorView part = *this;
    part.shape.set(axis, length);
    part.data = static_cast<Byte*>(data) +
                start * stride(axis) * static_cast<std::int64_t>(block_bytes(dtype));
    return part;
  }

  /// The same contiguous memory under another shape of as many elements.
  [[nodiscard]] BasicTensorView reshape(const Shape& dims) const {
    MINIACC_REQUIRE(is_contiguous(), "reshape: view must be contiguous");
    MINIACC_REQUIRE(dims.num_elements() == num_elements(), "reshape: number of elements differs");
    return BasicTensorView(data, dims, dtype, device);
  }

  /// Typed pointer to the first element; T must be the C++ type of dtype (float for f32,
  /// std::uint16_t for the bits of f16 and bf16, std::int8_t for i8, ...).
  template <typename T>
  [[nodiscard]] auto* as() const {
    using Element = std::conditional_t<std::is_const_v<Void>, const T, T>;
    MINIACC_REQUIRE(is_block_type(dtype) || sizeof(T) == block_bytes(dtype),
                    "tensor view: element size");
    return static_cast<Element*>(data);
  }
  /// Pointer to float elements; requires dtype f32.
  [[nodiscard]] auto* f32() const {
    MINIACC_REQUIRE(dtype == DType::kF32, "tensor view: wanted f32");
    return as<float>();
  }

 private:
  using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
};

using TensorView = BasicTensorView<void>;
using ConstTensorView = BasicTensorView<const void>;

/// Memory that Device::allocate handed out; returns itself to its device.
class MemoryOwner {
 public:
  virtual ~MemoryOwner() = default;
  virtual void deallocate(void* data, std::size_t bytes) noexcept = 0;
};

/// Owning, move-only block of device memory. Its device outlives it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(void* data, std::size_t bytes, MemoryOwner& owner) : data_(data, Free{&owner, bytes}) {}

  [[nodiscard]] void* data() const { return data_.get(); }
  [[nodiscard]] std::size_t size_bytes() const { return data_ ? data_.get_deleter().bytes : 0; }

 private:
  struct Free {
    // No default member initialisers: GCC takes them as complete only after Buffer, which would
    // delete Buffer's default constructor. unique_ptr value-initialises its deleter.
    MemoryOwner* owner;
    std::size_t bytes;
    void operator()(void* data) const noexcept { owner->deallocate(data, bytes); }
  };
  std::unique_ptr<void, Free> data_;
};

/// Owning, move-only, contiguous tensor.
class Tensor {
 public:
  Tensor() = default;
  Tensor(Buffer buffer, const Shape& shape, DType dtype, DeviceId device);

  [[nodiscard]] bool empty() const { return buffer_.data() == nullptr; }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] DeviceId device() const { return device_; }
  [[nodiscard]] std::size_t size_bytes() const { return buffer_.size_bytes(); }
  /// The same memory under another shape of as many elements.
  [[nodiscard]] Tensor reshaped(const Shape& shape) &&;
  [[nodiscard]] TensorView view();
  [[nodiscard]] ConstTensorView view() const;
  /// Host float elements; requires a CPU f32 tensor.
  [[nodiscard]] std::span<float> f32();
  [[nodiscard]] std::span<const float> f32() const;

 private:
  Buffer buffer_;
  Shape shape_;
  DType dtype_ = DType::kF32;
  DeviceId device_;
};

}  // namespace miniacc
