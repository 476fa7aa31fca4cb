#pragma once

#include <atomic>

namespace miniacc {

/// Set by a signal handler or another thread, read by long work between blocks, tiles and files.
/// Lock-free, hence safe to set from a signal handler.
class CancelToken {
 public:
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool cancelled() const noexcept {
    return cancelled_.load(std::memory_order_relaxed);
  }
  /// Throws ErrorException(kCancelled) once cancel() was called.
  void check() const;

 private:
  std::atomic<bool> cancelled_{false};
};

}  // namespace miniacc
