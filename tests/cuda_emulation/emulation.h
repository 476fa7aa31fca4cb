#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// What tests may set on the emulated machine and ask of it. README.md explains the model.
namespace cuda_emulation {

/// The machine that the runtime describes.
struct Machine {
  int num_devices = 1;
  int compute_major = 9;
  int compute_minor = 0;
  std::size_t total_bytes = std::size_t{8} << 30;
  int driver_version = 13000;  ///< 0: no driver
  bool has_code = true;        ///< false: the build holds no code for the card
};

/// In which order things happen that CUDA leaves open.
enum class Order { kForward, kReverse, kRandom };
enum class Streams {
  kLate,    ///< nothing runs before a call waits for it, and then only what that call needs
  kRandom,  ///< when a call waits, work of all streams runs, mixed by the seed
  kAtOnce,  ///< every call is carried out before it returns: for debuggers
};
struct Schedule {
  Order threads = Order::kForward;  ///< of the blocks of a grid and the threads of a block
  Streams streams = Streams::kLate;
  std::uint64_t seed = 1;
};

/// Gives everything back, forgets errors, counters and injected failures, and starts over.
void reset(const Machine& machine = {});
/// The schedule of what follows. A program starts with that of the environment variable
/// MINIACC_CUDA_EMULATION, e.g. "threads=random,streams=late,seed=7".
void set_schedule(const Schedule& schedule);
[[nodiscard]] Schedule schedule();

/// Kinds of runtime calls that can be made to fail.
enum class Call { kAllocate, kPin, kCopy, kFill, kLaunch, kStream, kEvent, kWait, kAny };
/// Calls of this kind since the last reset.
[[nodiscard]] std::uint64_t num_calls(Call kind);
/// The nth call of this kind from now fails (1: the next), once. 0 takes that back.
void fail_call(Call kind, std::uint64_t nth);
/// True once the failure that was asked for has happened.
[[nodiscard]] bool call_failed();

/// Memory of the card that other programs hold, from now on.
void set_other_programs_bytes(std::size_t bytes);
/// The same, but only from the nth allocation from now on.
void let_others_take(std::size_t bytes, std::uint64_t nth_allocation);

/// What the program under test holds.
struct Held {
  std::size_t allocations = 0;
  std::size_t bytes = 0;  ///< as asked for
  std::size_t pinned = 0;
  std::size_t streams = 0;
  std::size_t events = 0;
  friend bool operator==(const Held&, const Held&) = default;
};
[[nodiscard]] Held held();
/// Largest sum of bytes held on one device since the last reset.
[[nodiscard]] std::size_t peak_bytes();

/// What kernels did wrong since the last reset, one sentence each; also written to stderr.
[[nodiscard]] std::vector<std::string> reports();

}  // namespace cuda_emulation
