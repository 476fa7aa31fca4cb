#include "runtime/cuda_weight_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <numeric>
#include <thread>

#include "device/cuda_device.h"

namespace miniacc {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kLayerBytes = 4096;
constexpr std::int64_t kLayers = 7;

/// Every byte of a layer tells the layer and its place.
std::byte expected_byte(std::int64_t layer, std::size_t at) {
  return static_cast<std::byte>((static_cast<std::size_t>(layer) * 31 + at * 7 + at / 256) & 0xFFU);
}

class CudaWeightRing : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = CudaDevice::open(0);
    if (!device) {
      GTEST_SKIP() << device.error().message;
    }
    device_ = *std::move(device);
    compute_ = cuda::make_stream(0);
  }

  static RingPlan plan(std::int64_t places) {
    return plan_ring(kLayers, kLayerBytes, 2, static_cast<std::size_t>(places) * kLayerBytes)
        .value();
  }

  /// A ring whose first `num_pinned` layers have pinned records.
  Result<std::unique_ptr<WeightRing>> make_ring(std::int64_t places, std::int64_t num_pinned) {
    std::vector<bool> pinned(kLayers, false);
    std::fill_n(pinned.begin(), num_pinned, true);
    MINIACC_ASSIGN(records_, HostRecords::create(pinned_, kLayerBytes, pinned, 2));
    return WeightRing::create(*device_, *records_, {.plan = plan(places)}, fill());
  }

  WeightRing::Fill fill() {
    return [this](std::int64_t layer, std::span<std::byte> record) -> Status {
      ++fills_;
      if (layer == broken_layer_) {
        return fail(ErrorCode::kInvalidInput, "layer file is broken");
      }
      for (std::size_t i = 0; i < record.size(); ++i) {
        record[i] = expected_byte(layer, i);
      }
      return {};
    };
  }

  /// Walks the ring; what "compute" reads at each step goes to a place of its own, all in stream
  /// order and without a host wait, as the blocks of a forward pass are enqueued.
  Result<std::vector<std::vector<std::byte>>> walk(WeightRing& ring, std::int64_t steps) {
    Tensor results =
        empty_tensor(*device_, {steps, static_cast<std::int64_t>(kLayerBytes)}, DType::kI8);
    for (std::int64_t step = 0; step < steps; ++step) {
      MINIACC_ASSIGN(void* layer, ring.acquire(step % kLayers, compute_.get()));
      const TensorView out = results.view().narrow(0, step, 1);
      cuda::copy_async(out, ConstTensorView(layer, out.shape, out.dtype, device_->id()),
                       compute_.get());
    }
    std::vector<std::vector<std::byte>> read(static_cast<std::size_t>(steps),
                                             std::vector<std::byte>(kLayerBytes));
    for (std::int64_t step = 0; step < steps; ++step) {
      const TensorView from = results.view().narrow(0, step, 1);
      cuda::copy_async(
          TensorView(read[static_cast<std::size_t>(step)].data(), from.shape, from.dtype), from,
          compute_.get());
    }
    cuda::synchronize(compute_.get());
    return read;
  }

  std::unique_ptr<CudaDevice> device_;
  CudaPinnedHost pinned_{std::numeric_limits<std::size_t>::max()};
  cuda::Stream compute_;
  std::unique_ptr<HostRecords> records_;
  std::atomic<std::int64_t> fills_ = 0;
  std::int64_t broken_layer_ = -1;
};

TEST_F(CudaWeightRing, EveryLayerArrivesWholeWhateverIsResidentOrPinned) {
  constexpr std::int64_t kPasses = 3;
  for (const std::int64_t places : {2, 3, 5, 7}) {
    for (const std::int64_t pinned : {0, 2, 7}) {
      SCOPED_TRACE("places " + std::to_string(places) + ", pinned " + std::to_string(pinned));
      fills_ = 0;
      auto ring = make_ring(places, pinned).value();
      const auto read = walk(*ring, kLayers * kPasses);
      ASSERT_TRUE(read) << read.error().message;
      for (std::size_t step = 0; step < read->size(); ++step) {
        for (std::size_t i = 0; i < kLayerBytes; ++i) {
          ASSERT_EQ((*read)[step][i], expected_byte(static_cast<std::int64_t>(step) % kLayers, i))
              << "step " << step << ", byte " << i;
        }
      }
      // Residents travel once, the others once a pass; at most the slots travel for a pass to come.
      const RingPlan& plan = ring->plan();
      const StreamCounters counters = ring->counters();
      const std::int64_t needed = plan.num_resident() + kPasses * plan.num_streamed();
      EXPECT_GE(counters.copies, needed);
      EXPECT_LE(counters.copies, needed + plan.num_slots);
      EXPECT_EQ(counters.bytes_copied, static_cast<std::size_t>(counters.copies) * kLayerBytes);
      EXPECT_GE(counters.stall_ms, 0.0);
      if (pinned == kLayers) {
        EXPECT_EQ(fills_.load(), kLayers) << "a pinned layer is read once";
      }
    }
  }
  records_.reset();
  EXPECT_EQ(device_->bytes_in_use(), 0U);
  EXPECT_EQ(pinned_.bytes_in_use(), 0U);
}

TEST_F(CudaWeightRing, MemoryIsWhatThePlanSays) {
  auto ring = make_ring(4, 7).value();
  EXPECT_EQ(device_->bytes_in_use(), ring->plan().device_bytes());
  EXPECT_EQ(records_->pinned_bytes(), 7 * kLayerBytes) << "no staging where every layer is pinned";
  EXPECT_EQ(records_->num_pinned(), 7);
}

TEST_F(CudaWeightRing, AWalkMayEndEarlyAndAPassBeginsAnew) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    SCOPED_TRACE(repeat);
    auto ring = make_ring(3, repeat % 3).value();
    for (std::int64_t step = 0; step < repeat % 9; ++step) {
      ASSERT_TRUE(ring->acquire(step % kLayers, compute_.get()));
    }
    const auto read = walk(*ring, 2 * kLayers);
    ASSERT_TRUE(read) << read.error().message;
    for (std::size_t step = 0; step < read->size(); ++step) {
      for (std::size_t i = 0; i < kLayerBytes; ++i) {
        ASSERT_EQ((*read)[step][i], expected_byte(static_cast<std::int64_t>(step) % kLayers, i));
      }
    }
    for (std::int64_t step = 0; step < repeat % 5; ++step) {
      ASSERT_TRUE(ring->acquire(step, compute_.get()));
    }
  }
  records_.reset();
  cuda::synchronize(compute_.get());
  EXPECT_EQ(device_->bytes_in_use(), 0U);
  EXPECT_EQ(pinned_.bytes_in_use(), 0U);
}

TEST_F(CudaWeightRing, PinnedRecordsServeTheNextRing) {
  auto first = make_ring(3, 7).value();
  ASSERT_TRUE(walk(*first, kLayers));
  first.reset();
  EXPECT_EQ(fills_.load(), kLayers);
  auto second = WeightRing::create(*device_, *records_, {.plan = plan(5)}, fill()).value();
  const auto read = walk(*second, kLayers);
  ASSERT_TRUE(read);
  for (std::size_t step = 0; step < read->size(); ++step) {
    EXPECT_EQ((*read)[step][7], expected_byte(static_cast<std::int64_t>(step), 7));
  }
  EXPECT_EQ(fills_.load(), kLayers) << "nothing was read again";
}

TEST_F(CudaWeightRing, AReaderThatFailsEndsTheWalkWithItsErrorAndTheNextPassMayWork) {
  for (const std::int64_t pinned : {0, 7}) {
    broken_layer_ = 5;
    auto ring = make_ring(2, pinned).value();
    const auto read = walk(*ring, kLayers);
    ASSERT_FALSE(read);
    EXPECT_THAT(read.error().message, HasSubstr("layer file is broken"));
    broken_layer_ = -1;
    EXPECT_TRUE(walk(*ring, kLayers));
  }
}

TEST_F(CudaWeightRing, ACancelledJobDoesNotWaitForTheReader) {
  std::vector<bool> pinned(kLayers, false);
  records_ = HostRecords::create(pinned_, kLayerBytes, pinned, 2).value();
  std::atomic<bool> go = false;
  auto ring = WeightRing::create(*device_, *records_, {.plan = plan(3)},
                                 [&](std::int64_t, std::span<std::byte>) -> Status {
                                   while (!go) {
                                     std::this_thread::yield();
                                   }
                                   return {};
                                 })
                  .value();
  CancelToken cancel;
  cancel.cancel();
  EXPECT_THROW(static_cast<void>(ring->acquire(0, compute_.get(), &cancel)), ErrorException);
  go = true;
}

TEST_F(CudaWeightRing, LayersOutOfOrderAreADefect) {
  auto ring = make_ring(3, 0).value();
  EXPECT_THROW(static_cast<void>(ring->acquire(1, compute_.get())), InternalError);
  ASSERT_TRUE(ring->acquire(0, compute_.get()));
  EXPECT_THROW(static_cast<void>(ring->acquire(3, compute_.get())), InternalError);
}

TEST_F(CudaWeightRing, WithoutMemoryThereIsNoRing) {
  CudaDevice small(device_->info(), kLayerBytes);
  records_ =
      HostRecords::create(pinned_, kLayerBytes, std::vector<bool>(kLayers, false), 2).value();
  const auto ring = WeightRing::create(small, *records_, {.plan = plan(3)}, fill());
  ASSERT_FALSE(ring);
  EXPECT_EQ(ring.error().code, ErrorCode::kOutOfMemory);
  CudaPinnedHost little(kLayerBytes);
  EXPECT_FALSE(HostRecords::create(little, kLayerBytes, std::vector<bool>(kLayers, true), 2));
  EXPECT_EQ(device_->bytes_in_use(), 0U);
}

TEST_F(CudaWeightRing, WhatCannotBePinnedIsStaged) {
  CudaPinnedHost some(5 * kLayerBytes);
  records_ = HostRecords::create(some, kLayerBytes, std::vector<bool>(kLayers, true), 2).value();
  EXPECT_EQ(records_->num_pinned(), 3);
  auto ring = WeightRing::create(*device_, *records_, {.plan = plan(2)}, fill()).value();
  const auto read = walk(*ring, 2 * kLayers);
  ASSERT_TRUE(read) << read.error().message;
  for (std::size_t step = 0; step < read->size(); ++step) {
    EXPECT_EQ((*read)[step][99], expected_byte(static_cast<std::int64_t>(step) % kLayers, 99));
  }
  ring.reset();
  records_.reset();
}

}  // namespace
}  // namespace miniacc
