#include "kernels/backend_test.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "core/build_config.h"
#include "core/float_convert.h"
#include "device/cpu_device.h"
#include "support/compare.h"

namespace miniacc::testing {

namespace {

class CpuBackend final : public BackendDevice {
 public:
  Device& device() override { return device_; }
  CUstream_st* stream() override { return nullptr; }
  void upload(TensorView to, const void* host) override {
    std::memcpy(to.data, host, *storage_bytes(to.dtype, to.num_elements()));
  }
  void download(void* host, ConstTensorView from) override {
    std::memcpy(host, from.data, *storage_bytes(from.dtype, from.num_elements()));
  }

 private:
  CpuDevice device_;
};

}  // namespace

std::unique_ptr<BackendDevice> open_cpu_backend() { return std::make_unique<CpuBackend>(); }

std::vector<Backend> built_backends() {
  std::vector<Backend> backends = {{DeviceKind::kCpu}};
  if constexpr (kHasCuda) {
    backends.push_back({DeviceKind::kCuda});
  }
  return backends;
}

std::string backend_name(const ::testing::TestParamInfo<Backend>& info) {
  return info.param.kind == DeviceKind::kCpu ? "Cpu" : "Cuda";
}

void BackendTest::SetUp() {
  if constexpr (kHasCuda) {
    if (GetParam().kind == DeviceKind::kCuda) {
      auto backend = open_cuda_backend();
      if (!backend) {
        ASSERT_EQ(backend.error().code, ErrorCode::kUnsupported) << backend.error().message;
        GTEST_SKIP() << backend.error().message;
      }
      backend_ = *std::move(backend);
      return;
    }
  }
  ASSERT_EQ(GetParam().kind, DeviceKind::kCpu) << "no device of this kind in the test programs";
  backend_ = open_cpu_backend();
}

TensorView BackendTest::keep(const void* data, std::size_t bytes, const Shape& shape, DType dtype) {
  tensors_.push_back(empty_tensor(device(), shape, dtype));
  EXPECT_EQ(storage_bytes(dtype, shape.num_elements()), bytes);
  if (bytes > 0) {
    backend_->upload(tensors_.back().view(), data);
  }
  return tensors_.back().view();
}

TensorView BackendTest::upload(const std::vector<float>& values, const Shape& shape) {
  return keep(values.data(), values.size() * sizeof(float), shape, DType::kF32);
}

TensorView BackendTest::upload_bf16(const std::vector<float>& values, const Shape& shape) {
  std::vector<std::uint16_t> bits;
  bits.reserve(values.size());
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
  const std::vector<std::uint8_t> nan(*storage_bytes(dtype, shape.num_elements()), 0xFF);
  return keep(nan.data(), nan.size(), shape, dtype);
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

template <typename T>
std::vector<T> BackendTest::download_as(const ConstTensorView& view) const {
  if (view.num_elements() == 0) {
    return {};
  }
  // Everything from the first to the last element comes over; the strides then pick on the host.
  std::int64_t extent = 1;
  for (int axis = 0; axis < view.shape.rank(); ++axis) {
    extent += (view.dim(axis) - 1) * view.stride(axis);
  }
  std::vector<T> host(static_cast<std::size_t>(extent));
  backend_->download(host.data(), ConstTensorView(view.as<T>(), {extent}, view.dtype, view.device));
  std::vector<T> values;
  append(values, view, 0, static_cast<const T*>(host.data()));
  return values;
}

std::vector<float> BackendTest::download(ConstTensorView view) const {
  MINIACC_REQUIRE(view.dtype == DType::kF32, "download: f32");
  return download_as<float>(view);
}

std::vector<std::int8_t> BackendTest::download_i8(ConstTensorView view) const {
  return download_as<std::int8_t>(view);
}

std::vector<std::int32_t> BackendTest::download_i32(ConstTensorView view) const {
  return download_as<std::int32_t>(view);
}

void BackendTest::expect_identical(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_TRUE(identical_to(a, b)) << "one thread against two";
}

}  // namespace miniacc::testing
