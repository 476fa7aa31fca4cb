#include "core/cancel_token.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/error.h"

namespace miniacc {
namespace {

TEST(CancelToken, ChecksPassUntilCancelled) {
  CancelToken token;
  EXPECT_FALSE(token.cancelled());
  EXPECT_NO_THROW(token.check());
  token.cancel();
  EXPECT_TRUE(token.cancelled());
  try {
    token.check();
    FAIL() << "did not throw";
  } catch (const ErrorException& error) {
    EXPECT_EQ(error.error().code, ErrorCode::kCancelled);
  }
}

TEST(CancelToken, IsSeenByAnotherThread) {
  CancelToken token;
  std::thread worker([&] {
    while (!token.cancelled()) {
      std::this_thread::yield();
    }
  });
  token.cancel();
  worker.join();
  EXPECT_TRUE(token.cancelled());
}

TEST(CancelToken, IsSafeInASignalHandler) { EXPECT_TRUE(std::atomic<bool>::is_always_lock_free); }

}  // namespace
}  // namespace miniacc
