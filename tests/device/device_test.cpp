#include "device/device.h"

#include <gtest/gtest.h>

#include "device/cpu_device.h"

namespace miniacc {
namespace {

TEST(Device, EmptyTensorIsContiguousOnTheDevice) {
  CpuDevice device;
  Tensor tensor = empty_tensor(device, {2, 3}, DType::kBF16);
  EXPECT_EQ(tensor.shape(), Shape({2, 3}));
  EXPECT_EQ(tensor.dtype(), DType::kBF16);
  EXPECT_TRUE(tensor.view().is_contiguous());
  EXPECT_EQ(tensor.view().device, device.id());
  EXPECT_FALSE(empty_tensor(device, {0, 3}).empty()) << "no elements is not absent";
}

TEST(Device, EmptyTensorThrowsTheErrorThatTryReturns) {
  CpuDevice device(64);
  const auto tried = try_empty_tensor(device, {17}, DType::kF32);
  ASSERT_FALSE(tried);
  EXPECT_EQ(tried.error().code, ErrorCode::kOutOfMemory);
  try {
    static_cast<void>(empty_tensor(device, {17}));
    FAIL() << "did not throw";
  } catch (const ErrorException& error) {
    EXPECT_EQ(error.error().message, tried.error().message);
  }
  EXPECT_TRUE(try_empty_tensor(device, {16}, DType::kF32));
}

TEST(Device, RefusesShapesWithoutASize) {
  CpuDevice device;
  constexpr std::int64_t kBig = std::int64_t{1} << 62;
  const auto huge = try_empty_tensor(device, {kBig}, DType::kF64);
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().code, ErrorCode::kOutOfMemory);
  const auto partial_block = try_empty_tensor(device, {33}, DType::kQ4_0);
  ASSERT_FALSE(partial_block);
}

}  // namespace
}  // namespace miniacc
