#include "runtime/frame_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <vector>

namespace miniacc {
namespace {

video_vae::FrameBatch batch(std::int64_t first) {
  return {.first_frame = first, .pixels = {}, .rgb = {}};
}

TEST(FrameQueue, BatchesArriveInOrderOnAnotherThread) {
  std::vector<std::int64_t> seen;
  std::thread::id worker;
  const video_vae::FrameSink sink = [&](const video_vae::FrameBatch& frames) -> Status {
    seen.push_back(frames.first_frame);
    worker = std::this_thread::get_id();
    return {};
  };
  FrameQueue queue(sink);
  for (std::int64_t i = 0; i < 50; ++i) {
    ASSERT_TRUE(queue.push(batch(i)));
  }
  ASSERT_TRUE(queue.finish());
  ASSERT_EQ(seen.size(), 50U);
  for (std::int64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
  }
  EXPECT_NE(worker, std::this_thread::get_id());
}

TEST(FrameQueue, ABatchIsDoneBeforeTheCallAfterItsOwnReturns) {
  std::atomic<std::int64_t> done = -1;
  const video_vae::FrameSink sink = [&](const video_vae::FrameBatch& frames) -> Status {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    done = frames.first_frame;
    return {};
  };
  FrameQueue queue(sink);
  for (std::int64_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(queue.push(batch(i)));
    EXPECT_GE(done, i - 1) << "its memory is about to be written again";
  }
  ASSERT_TRUE(queue.finish());
  EXPECT_EQ(done, 19);
  EXPECT_GT(queue.waited_seconds(), 0.0);
}

TEST(FrameQueue, AnErrorOfTheSinkIsThatOfTheNextCall) {
  int calls = 0;
  const video_vae::FrameSink sink = [&](const video_vae::FrameBatch&) -> Status {
    ++calls;
    return fail(ErrorCode::kIo, "the disk is full");
  };
  FrameQueue queue(sink);
  ASSERT_TRUE(queue.push(batch(0)));
  const Status next = queue.push(batch(1));
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().code, ErrorCode::kIo);
  const Status last = queue.finish();
  ASSERT_FALSE(last);
  EXPECT_EQ(last.error().message, "the disk is full");
  EXPECT_EQ(calls, 1);
}

TEST(FrameQueue, WhatTheSinkThrowsArrives) {
  const video_vae::FrameSink sink = [](const video_vae::FrameBatch&) -> Status {
    throw std::runtime_error("thrown");
  };
  FrameQueue queue(sink);
  ASSERT_TRUE(queue.push(batch(0)));
  EXPECT_THROW(static_cast<void>(queue.finish()), std::runtime_error);
}

TEST(FrameQueue, AQueueThatIsGivenUpWaitsForTheBatchAtWork) {
  std::atomic<bool> done = false;
  const video_vae::FrameSink sink = [&](const video_vae::FrameBatch&) -> Status {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    done = true;
    return {};
  };
  {
    FrameQueue queue(sink);
    ASSERT_TRUE(queue.push(batch(0)));
  }
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace miniacc
