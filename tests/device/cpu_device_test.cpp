#include "device/cpu_device.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

namespace miniacc {
namespace {

TEST(CpuDevice, HandsOutAlignedMemoryAndCountsIt) {
  CpuDevice device;
  EXPECT_EQ(device.id(), (DeviceId{DeviceKind::kCpu, 0}));
  for (const std::size_t bytes : {0, 1, 63, 64, 65, 4096}) {
    const auto before = device.bytes_in_use();
    auto buffer = device.allocate(bytes);
    ASSERT_TRUE(buffer);
    EXPECT_GE(buffer->size_bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0U);
    EXPECT_EQ(device.bytes_in_use(), before + buffer->size_bytes());
    std::memset(buffer->data(), 1, buffer->size_bytes());
  }
  EXPECT_EQ(device.bytes_in_use(), 0U);
}

TEST(CpuDevice, KeepsItsCeilingAndSaysWhy) {
  CpuDevice device(1024);
  auto first = device.allocate(1000);  // rounded up to 1024
  ASSERT_TRUE(first);
  const auto second = device.allocate(1);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kOutOfMemory);
  EXPECT_NE(second.error().message.find("1024 of 1024 bytes are in use"), std::string::npos)
      << second.error().message;
  first = Buffer();
  EXPECT_TRUE(device.allocate(1024));
  EXPECT_FALSE(device.allocate(1025));
}

TEST(CpuDevice, RefusesSizesNearTheAddressSpace) {
  CpuDevice device;
  constexpr std::size_t kMax = std::numeric_limits<std::size_t>::max();
  for (const std::size_t bytes : {kMax, kMax - 63, kMax - 64, kMax / 2}) {
    const auto buffer = device.allocate(bytes);
    ASSERT_FALSE(buffer) << bytes;
    EXPECT_EQ(buffer.error().code, ErrorCode::kOutOfMemory);
  }
  EXPECT_EQ(device.bytes_in_use(), 0U) << "a refused allocation leaves no reservation";
}

TEST(CpuDevice, PeakIsTheLargestSumEverInUse) {
  CpuDevice device;
  {
    const auto a = device.allocate(640);
    { const auto b = device.allocate(1280); }
    const auto c = device.allocate(64);
  }
  EXPECT_EQ(device.bytes_in_use(), 0U);
  EXPECT_EQ(device.peak_bytes(), 1920U);
}

TEST(CpuDevice, ThreadsNeverExceedTheCeilingTogether) {
  constexpr std::size_t kCeiling = 64 * 10;
  CpuDevice device(kCeiling);
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        auto buffer = device.allocate(static_cast<std::size_t>(64 * (1 + (i + t) % 6)));
        if (!buffer) {
          ++refused;
          continue;
        }
        std::memset(buffer->data(), t, buffer->size_bytes());
        if (device.bytes_in_use() > kCeiling) {
          ADD_FAILURE() << "over the ceiling";
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(device.bytes_in_use(), 0U);
  EXPECT_LE(device.peak_bytes(), kCeiling);
  EXPECT_GT(device.peak_bytes(), 0U);
}

}  // namespace
}  // namespace miniacc
