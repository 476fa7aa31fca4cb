#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "kernels/op_context.h"
#include "support/tolerance.h"

namespace miniacc::testing {

/// A device kind that the op suites run on. One row a backend that this build has; the suites
/// themselves name no backend.
struct Backend {
  DeviceKind kind;
};
std::vector<Backend> built_backends();
std::string backend_name(const ::testing::TestParamInfo<Backend>& info);

/// A device, the stream its ops run in, and copies to and from it that are done when they return.
class BackendDevice {
 public:
  virtual ~BackendDevice() = default;
  [[nodiscard]] virtual Device& device() = 0;
  [[nodiscard]] virtual CUstream_st* stream() = 0;
  /// `host` holds what a contiguous device view of that shape holds.
  virtual void upload(TensorView to, const void* host) = 0;
  virtual void download(void* host, ConstTensorView from) = 0;
};
std::unique_ptr<BackendDevice> open_cpu_backend();
/// Device 0; kUnsupported where the machine has none. Defined in builds with CUDA only.
Result<std::unique_ptr<BackendDevice>> open_cuda_backend();

/// Base of every op suite. Uploads inputs to the backend's device, owns them and the outputs until
/// the test ends, and downloads results. A backend whose device the machine lacks is skipped, which
/// GoogleTest counts and lists.
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
  [[nodiscard]] std::vector<float> download(ConstTensorView view) const;
  [[nodiscard]] std::vector<std::int8_t> download_i8(ConstTensorView view) const;
  [[nodiscard]] std::vector<std::int32_t> download_i32(ConstTensorView view) const;

  /// Runs `op(ctx)` with 1 and with 2 threads and returns the first result after checking that the
  /// second agrees bit by bit.
  template <typename Op>
  std::vector<float> run_identically(const Op& op) {
    OpContext one = ctx(1);
    OpContext two = ctx(2);
    std::vector<float> first = download(op(one));
    const std::vector<float> second = download(op(two));
    expect_identical(first, second);
    return first;
  }

  /// Expects what the backend does with an index outside its table: the CPU throws InternalError,
  /// CUDA, whose host cannot see the index, makes the whole result (of one row) NaN.
  template <typename Op>
  void expect_stray_index_refused(const Op& op) {
    OpContext context = ctx();
    if (GetParam().kind == DeviceKind::kCpu) {
      EXPECT_THROW(op(context), InternalError);
    } else {
      for (const float value : download(op(context))) {
        EXPECT_TRUE(std::isnan(value)) << value;
      }
    }
  }

  OpContext ctx(int num_threads = 2) {
    return {.device = device(), .num_threads = num_threads, .stream = backend_->stream()};
  }
  Device& device() { return backend_->device(); }

 private:
  static void expect_identical(const std::vector<float>& a, const std::vector<float>& b);
  TensorView keep(const void* data, std::size_t bytes, const Shape& shape, DType dtype);

  template <typename T>
  std::vector<T> download_as(const ConstTensorView& view) const;

  std::unique_ptr<BackendDevice> backend_;
  std::vector<Tensor> tensors_;
};

}  // namespace miniacc::testing

/// Runs a suite on every backend, or on the CPU alone where no other has the op: contract_test.cpp
/// checks that the others refuse it.
#define MINIACC_BACKEND_SUITE(suite)                                                  \
  INSTANTIATE_TEST_SUITE_P(Backends, suite,                                           \
                           ::testing::ValuesIn(::miniacc::testing::built_backends()), \
                           ::miniacc::testing::backend_name)

#define MINIACC_CPU_BACKEND_SUITE(suite)                                           \
  INSTANTIATE_TEST_SUITE_P(                                                        \
      Backends, suite,                                                             \
      ::testing::Values(::miniacc::testing::Backend{::miniacc::DeviceKind::kCpu}), \
      ::miniacc::testing::backend_name)
