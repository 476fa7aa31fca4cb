#include "runtime/frame_queue.h"

#include <chrono>
#include <utility>

namespace miniacc {

FrameQueue::FrameQueue(const video_vae::FrameSink& sink)
    : sink_(sink), thread_([this] { work(); }) {}

FrameQueue::~FrameQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void FrameQueue::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || batch_; });
    if (!batch_) {
      return;
    }
    const video_vae::FrameBatch batch = *batch_;
    lock.unlock();
    Status status;
    std::exception_ptr thrown;
    try {
      status = sink_(batch);
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    status_ = std::move(status);
    thrown_ = thrown;
    batch_.reset();
    changed_.notify_all();
  }
}

Status FrameQueue::wait() {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !batch_; });
  waited_seconds_ +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (thrown_) {
    std::rethrow_exception(std::exchange(thrown_, nullptr));
  }
  return status_;
}

Status FrameQueue::push(const video_vae::FrameBatch& batch) {
  MINIACC_RETURN_IF_ERROR(wait());
  {
    const std::lock_guard lock(mutex_);
    batch_ = batch;
  }
  changed_.notify_all();
  return {};
}

Status FrameQueue::finish() { return wait(); }

}  // namespace miniacc
