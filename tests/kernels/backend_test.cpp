#include "kernels/backend_test.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "core/float_convert.h"
#include "device/cpu_device.h"
#include "support/compare.h"

namespace miniacc::testing {

std::vector<Backend> built_backends() { return {{DeviceKind::kCpu}}; }

std::string backend_name(const ::testing::TestParamInfo<Backend>& info) {
  return info.param.kind == DeviceKind::kCpu ? "Cpu" : "Cuda";
}

void BackendTest::SetUp() {
  ASSERT_EQ(GetParam().kind, DeviceKind::kCpu) << "no device of this kind in the test programs";
  device_ = std::make_unique<CpuDevice>();
}

TensorView BackendTest::keep(const void* data, std::size_t bytes, const Shape& shape, DType dtype) {
  tensors_.push_back(empty_tensor(*device_, shape, dtype));
  EXPECT_EQ(storage_bytes(dtype, shape.num_elements()), bytes);
  if (bytes > 0) {
    std::memcpy(tensors_.back().view().data, data, bytes);
  }
  return tensors_.back().view();
}

TensorView BackendTest::upload(const std::vector<float>& values, const Shape& shape) {
  return keep(values.data(), values.size() * sizeof(float), shape, DType::kF32);
}

TensorView BackendTest::upload_bf16(const std::vector<float>& values, const Shape& shape) {
  std::vector<std::uint16_t> bits;
  for (const float value : values) {
    bits.push_back(float_to_bf16(value));
  }
  return keep(bits.data(), bits.size() * sizeof(std::uint16_t), shape, DType::kBF16);
}

TensorView BackendTest::upload_i8(const std::vector<std::int8_t>& values, const Shape& shape) {
  return keep(values.data(), values.size(), shape, DType::kI8);
}

TensorView BackendTest::upload_i32(const std::vector<std::int32_t>& values) {
  return keep(values.data(), values.size() * sizeof(std::int32_t),
              {static_cast<std::int64_t>(values.size())}, DType::kI32);
}

TensorView BackendTest::empty(const Shape& shape, DType dtype) {
  tensors_.push_back(empty_tensor(*device_, shape, dtype));
  std::memset(tensors_.back().view().data, 0xFF, *storage_bytes(dtype, shape.num_elements()));
  return tensors_.back().view();
}

namespace {
template <typename T>
void append(std::vector<T>& values, const ConstTensorView& view, int axis, const T* data) {
  if (axis == view.shape.rank()) {
    values.push_back(*data);
    return;
  }
  for (std::int64_t i = 0; i < view.dim(axis); ++i) {
    append(values, view, axis + 1, data + i * view.stride(axis));
  }
}
}  // namespace

std::vector<float> BackendTest::download(ConstTensorView view) const {
  std::vector<float> values;
  append(values, view, 0, view.f32());
  return values;
}

std::vector<std::int8_t> BackendTest::download_i8(ConstTensorView view) const {
  std::vector<std::int8_t> values;
  append(values, view, 0, view.as<std::int8_t>());
  return values;
}

void BackendTest::expect_identical(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_TRUE(identical_to(a, b)) << "one thread against two";
}

}  // namespace miniacc::testing
