#include "device/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "device/cuda_handles.h"
#include "device/device_error.h"

namespace miniacc {
namespace {

using ::testing::HasSubstr;

// These run on any machine.

TEST(CudaDeviceList, NamesTheDevicesOrSaysWhyThereAreNone) {
  const auto devices = list_cuda_devices();
  if (!devices) {
    EXPECT_EQ(devices.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(devices.error().message, HasSubstr("no usable CUDA device: "));
    EXPECT_THAT(devices.error().message, HasSubstr("NVIDIA driver"));
    EXPECT_THAT(devices.error().message, HasSubstr("; run on the CPU instead"));
    return;
  }
  ASSERT_FALSE(devices->empty());
  for (const CudaDeviceInfo& info : *devices) {
    EXPECT_FALSE(info.name.empty());
    EXPECT_GT(info.compute_major, 0);
    EXPECT_GT(info.total_bytes, 0U);
  }
}

TEST(CudaDeviceList, OpeningADeviceThatIsNotThereIsAnAnswer) {
  const bool has_device = list_cuda_devices().has_value();
  for (const int ordinal : {-1, 4096}) {
    const auto device = CudaDevice::open(ordinal);
    ASSERT_FALSE(device);
    EXPECT_EQ(device.error().code,
              has_device ? ErrorCode::kInvalidArgument : ErrorCode::kUnsupported)
        << device.error().message;
  }
}

TEST(CudaDeviceList, RefusesCardsOlderThanAmpere) {
  const CudaDeviceInfo turing{
      .ordinal = 1, .name = "Old Card", .compute_major = 7, .compute_minor = 5};
  const Status refused = require_supported(turing);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(refused.error().message,
              HasSubstr("CUDA device 1 (Old Card) has compute capability 7.5, wanted 8.0"));
  for (const auto& [major, minor] : {std::pair{8, 0}, {8, 6}, {8, 9}, {9, 0}, {12, 0}}) {
    EXPECT_TRUE(require_supported({.compute_major = major, .compute_minor = minor}));
  }
}

TEST(CudaCopy, RefusesWhatItCannotCopy) {
  std::vector<float> memory(8);
  const ConstTensorView host(memory.data(), {2, 4}, DType::kF32);
  TensorView there(memory.data(), {2, 4}, DType::kF32, {DeviceKind::kCuda, 0});
  TensorView second = there;
  second.device.ordinal = 1;
  EXPECT_THROW(cuda::copy_async(TensorView(memory.data(), {2, 4}, DType::kF32), host, nullptr),
               InternalError);
  EXPECT_THROW(cuda::copy_async(second, there, nullptr), InternalError);
  EXPECT_THROW(cuda::copy_async(there.reshape({4, 2}), host, nullptr), InternalError);
  EXPECT_THROW(cuda::copy_async(there.narrow(1, 0, 2), host.narrow(1, 0, 2), nullptr),
               InternalError);
  there.dtype = DType::kI32;
  EXPECT_THROW(cuda::copy_async(there, host, nullptr), InternalError);
}

/// What needs a device: skipped, counted and listed where there is none.
class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = CudaDevice::open(0, {.ceiling_bytes = kCeiling});
    if (!device) {
      ASSERT_EQ(device.error().code, ErrorCode::kUnsupported) << device.error().message;
      GTEST_SKIP() << device.error().message;
    }
    device_ = *std::move(device);
  }

  static constexpr std::size_t kCeiling = std::size_t{1} << 20;
  std::unique_ptr<CudaDevice> device_;
};

TEST_F(CudaDeviceTest, HandsOutAlignedMemoryAndCountsIt) {
  EXPECT_EQ(device_->id(), (DeviceId{DeviceKind::kCuda, 0}));
  for (const std::size_t bytes : {0, 1, 255, 256, 257, 4096}) {
    const auto before = device_->bytes_in_use();
    auto buffer = device_->allocate(bytes);
    ASSERT_TRUE(buffer);
    EXPECT_GE(buffer->size_bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 256, 0U);
    EXPECT_EQ(device_->bytes_in_use(), before + buffer->size_bytes());
  }
  EXPECT_EQ(device_->bytes_in_use(), 0U);
  EXPECT_EQ(device_->peak_bytes(), 4096U);
}

TEST_F(CudaDeviceTest, KeepsItsCeilingAndSaysWhy) {
  auto first = device_->allocate(kCeiling - 100);  // rounded up to the ceiling
  ASSERT_TRUE(first);
  const auto second = device_->allocate(1);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(second.error().message, HasSubstr("1048576 of 1048576 bytes are in use"));
  first = Buffer();
  EXPECT_TRUE(device_->allocate(kCeiling));
  EXPECT_FALSE(device_->allocate(kCeiling + 1));
  EXPECT_FALSE(device_->allocate(std::numeric_limits<std::size_t>::max()));
  EXPECT_EQ(device_->bytes_in_use(), 0U) << "a refused allocation leaves no reservation";
}

TEST_F(CudaDeviceTest, TheDriverRunningOutIsAnAnswerAndLeavesTheDeviceUsable) {
  constexpr std::size_t kHuge = std::size_t{1} << 50;
  auto unbounded = CudaDevice::open(0, {.ceiling_bytes = kHuge});
  ASSERT_TRUE(unbounded);
  const auto refused = (*unbounded)->allocate(kHuge / 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ((*unbounded)->bytes_in_use(), 0U);
  EXPECT_EQ((*unbounded)->peak_bytes(), 0U) << "what was never there is no peak";
  EXPECT_TRUE((*unbounded)->allocate(256));
}

TEST_F(CudaDeviceTest, TheDefaultCeilingLeavesTheHeadroom) {
  const auto device = CudaDevice::open(0);
  ASSERT_TRUE(device);
  EXPECT_GT((*device)->ceiling_bytes(), 0U);
  EXPECT_LE((*device)->ceiling_bytes(),
            (*device)->info().total_bytes - CudaDeviceOptions{}.headroom_bytes);
  const auto full =
      CudaDevice::open(0, {.headroom_bytes = std::numeric_limits<std::size_t>::max()});
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::kOutOfMemory);
}

TEST_F(CudaDeviceTest, CopiesThereWithinAndBackInStreamOrder) {
  constexpr std::int64_t kSize = 10007;
  CudaPinnedHost pinned(std::size_t{1} << 20);
  Tensor source = empty_tensor(pinned, {kSize});
  Tensor result = empty_tensor(pinned, {kSize});
  std::iota(source.f32().begin(), source.f32().end(), 1.0F);
  std::fill(result.f32().begin(), result.f32().end(), 0.0F);
  Tensor a = empty_tensor(*device_, {kSize});
  Tensor b = empty_tensor(*device_, {kSize});

  const cuda::Stream up = cuda::make_stream(0);
  const cuda::Stream down = cuda::make_stream(0);
  const cuda::Event start = cuda::make_event(0, cuda::EventTiming::kOn);
  const cuda::Event uploaded = cuda::make_event(0, cuda::EventTiming::kOn);
  cuda::record(start, up.get());
  cuda::copy_async(a.view(), source.view(), up.get());
  cuda::copy_async(b.view(), a.view(), up.get());
  cuda::record(uploaded, up.get());
  cuda::wait(down.get(), uploaded);
  cuda::copy_async(result.view(), b.view(), down.get());
  cuda::synchronize(down.get());
  cuda::synchronize(uploaded);
  EXPECT_EQ(std::memcmp(source.f32().data(), result.f32().data(), source.f32().size_bytes()), 0);
  EXPECT_GT(cuda::elapsed_ms(start, uploaded), 0.0F);
}

TEST_F(CudaDeviceTest, PinnedMemoryHasACeilingOfItsOwn) {
  CudaPinnedHost pinned(4096);
  EXPECT_EQ(pinned.id(), DeviceId{});
  auto first = pinned.allocate(4000);
  ASSERT_TRUE(first);
  EXPECT_EQ(pinned.bytes_in_use(), first->size_bytes());
  const auto second = pinned.allocate(4096);
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("pinned host buffer of 4096 bytes does not fit"));
  first = Buffer();
  EXPECT_EQ(pinned.bytes_in_use(), 0U);
}

TEST_F(CudaDeviceTest, AFailedCallIsADeviceErrorThatNamesItAndDoesNotStick) {
  const cuda::Event never = cuda::make_event(0);  // without timing
  try {
    static_cast<void>(cuda::elapsed_ms(never, never));
    FAIL() << "did not throw";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cudaEventElapsedTime: "));
  }
  EXPECT_NO_THROW(cuda::synchronize(static_cast<CUstream_st*>(nullptr)));
}

}  // namespace
}  // namespace miniacc
