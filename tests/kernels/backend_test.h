#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "kernels/op_context.h"
#include "support/tolerance.h"

namespace miniacc::testing {

/// A device kind that the op suites run on. One row a backend that this build has: backend_test.cpp
/// makes the device and copies to and from it; the suites themselves name no backend.
struct Backend {
  DeviceKind kind;
};
std::vector<Backend> built_backends();
std::string backend_name(const ::testing::TestParamInfo<Backend>& info);

/// Base of every op suite. Uploads inputs to the backend's device, owns them and the outputs until
/// the test ends, and downloads results. A backend whose device the machine lacks is skipped.
class BackendTest : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override;

  TensorView upload(const std::vector<float>& values, const Shape& shape);
  TensorView upload_bf16(const std::vector<float>& values, const Shape& shape);
  TensorView upload_i8(const std::vector<std::int8_t>& values, const Shape& shape);
  TensorView upload_i32(const std::vector<std::int32_t>& values);
  /// Filled with a NaN, so that an element the op leaves out fails the comparison.
  TensorView empty(const Shape& shape, DType dtype = DType::kF32);
  /// The elements of a view in row-major order, strided views included.
  std::vector<float> download(ConstTensorView view) const;
  std::vector<std::int8_t> download_i8(ConstTensorView view) const;

  /// Runs `op(ctx)` with 1 and with 2 threads and returns the first result after checking that the
  /// second agrees bit by bit.
  template <typename Op>
  std::vector<float> run_identically(const Op& op) {
    OpContext one{.device = *device_, .num_threads = 1};
    OpContext two{.device = *device_, .num_threads = 2};
    std::vector<float> first = download(op(one));
    const std::vector<float> second = download(op(two));
    expect_identical(first, second);
    return first;
  }

  OpContext ctx() { return {.device = *device_, .num_threads = 2}; }
  Device& device() { return *device_; }

 private:
  static void expect_identical(const std::vector<float>& a, const std::vector<float>& b);
  TensorView keep(const void* data, std::size_t bytes, const Shape& shape, DType dtype);

  std::unique_ptr<Device> device_;
  std::vector<Tensor> tensors_;
};

}  // namespace miniacc::testing

#define MINIACC_BACKEND_SUITE(suite)                                                  \
  INSTANTIATE_TEST_SUITE_P(Backends, suite,                                           \
                           ::testing::ValuesIn(::miniacc::testing::built_backends()), \
                           ::miniacc::testing::backend_name)
