#pragma once

#include <atomic>
#include <cstdint>
#include <exception>

#include "kernels/op_context.h"

namespace miniacc::ops::cpu {

/// Below this many elementary operations a second thread costs more than it saves: waking one takes
/// some microseconds, and far more on a busy machine.
inline constexpr std::int64_t kMinParallelWork = 1 << 16;

/// The threads worth using for `work` elementary operations.
inline int useful_threads(const OpContext& ctx, std::int64_t work) {
  return work < kMinParallelWork ? 1 : ctx.num_threads;
}

/// body(i) for i in [0, count), spread over at most ctx.num_threads threads; one call does about
/// `work` elementary operations. Bodies must not throw and must not depend on each other, so that
/// the result does not depend on the number of threads.
template <typename Body>
void parallel_for(const OpContext& ctx, std::int64_t count, std::int64_t work, const Body& body) {
  const int threads = count > 1 ? useful_threads(ctx, count * work) : 1;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (std::int64_t i = 0; i < count; ++i) {
    body(i);
  }
}

/// Like parallel_for for few, large, unequal tasks that may throw: the first exception is rethrown
/// here once every thread is done, and a cancelled job stops before its next task.
template <typename Body>
void parallel_tasks(const OpContext& ctx, std::int64_t count, std::int64_t work, const Body& body) {
  const int threads = count > 1 ? useful_threads(ctx, count * work) : 1;
  std::exception_ptr failure;
  std::atomic<bool> failed{false};
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (threads > 1)
  for (std::int64_t i = 0; i < count; ++i) {
    if (failed.load(std::memory_order_relaxed)) {
      continue;
    }
    try {
      ctx.check_cancelled();
      body(i);
    } catch (...) {
      if (!failed.exchange(true)) {
        failure = std::current_exception();
      }
    }
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
}

}  // namespace miniacc::ops::cpu
