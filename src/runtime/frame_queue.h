#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "model/video_vae/video_vae_decoder.h"

namespace miniacc {

/// Hands batches of frames to a sink on a thread of its own, so that they are encoded while the
/// next ones are decoded. One batch is at work at a time: with two buffers that take turns nothing
/// is copied and memory is bounded.
class FrameQueue {
 public:
  /// `sink` is called on the queue's thread, a batch at a time, in order.
  explicit FrameQueue(const video_vae::FrameSink& sink);
  /// Waits for the batch at work.
  ~FrameQueue();
  FrameQueue(const FrameQueue&) = delete;
  FrameQueue& operator=(const FrameQueue&) = delete;

  /// Waits until the batch before is done, hands this one over and returns. What the batch views
  /// stays valid until the next call, or that of finish(), returns. The error of an earlier batch
  /// is that of this call; what its sink threw is thrown here.
  [[nodiscard]] Status push(const video_vae::FrameBatch& batch);
  /// Waits until all is done.
  [[nodiscard]] Status finish();
  /// How long push() and finish() have waited.
  [[nodiscard]] double waited_seconds() const { return waited_seconds_; }

 private:
  void work();
  /// Until no batch is at work.
  [[nodiscard]] Status wait();

  const video_vae::FrameSink& sink_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<video_vae::FrameBatch> batch_;  ///< handed over and not done
  bool stop_ = false;
  Status status_ = {};
  std::exception_ptr thrown_;
  double waited_seconds_ = 0.0;
  std::thread thread_;
};

}  // namespace miniacc
