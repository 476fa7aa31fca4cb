#pragma once

#include <cstddef>

namespace cuda_emulation {

/// A stack to run a function on, beside the thread's own. On x86-64 a switch is a dozen
/// instructions; elsewhere ucontext does it (slower: it changes the signal mask each time).
class Fiber {
 public:
  /// Bytes of a stack; untouched pages cost nothing.
  static constexpr std::size_t kStackBytes = std::size_t{256} << 10;

  /// `stack` is [stack, stack + kStackBytes); entry(argument) must end by resume_caller().
  Fiber(std::byte* stack, void (*entry)(void*), void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs the fiber until it calls resume_caller().
  void resume();
  /// From inside the fiber: back to where resume() was called. `last`: the fiber will not run
  /// again.
  void resume_caller(bool last = false);

  [[nodiscard]] std::byte* stack() const { return stack_; }

 private:
  struct State;
  static void start(void* fiber);

  std::byte* stack_;
  void (*entry_)(void*);
  void* argument_;
  void* own_ = nullptr;     ///< saved stack pointer (x86-64) or ucontext_t
  void* caller_ = nullptr;  ///< the same of the caller
  // What AddressSanitizer has to know of a switch.
  void* caller_fake_stack_ = nullptr;
  const void* caller_stack_ = nullptr;
  std::size_t caller_stack_bytes_ = 0;
  void* own_fake_stack_ = nullptr;
};

}  // namespace cuda_emulation
