#include "block_runner.h"

#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <sstream>

#include "fiber.h"

// Declared by ptx::dynamic_shared().
namespace miniacc::ops::cuda::ptx {
alignas(1024) thread_local unsigned char miniacc_dynamic_shared[cuda_emulation::kMaxDynamicShared +
                                                                256];
}  // namespace miniacc::ops::cuda::ptx

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace cuda_emulation {

ThreadState* this_thread = nullptr;

namespace {

constexpr unsigned kLanes = 32;

enum class State { kNew, kReady, kAtBlock, kAtWarp, kDone };

struct Runner;

struct Thread {
  ThreadState view;
  State state = State::kNew;
  unsigned number = 0;
  std::unique_ptr<Fiber> fiber;
  WarpCall* call = nullptr;  // while kAtWarp
  Vote vote = Vote::kNone;   // while kAtBlock
  bool predicate = false;    //
  int vote_result = 0;
  std::source_location where;  // of the barrier
};

/// Thrown through a kernel to leave it; caught in the fiber's entry.
struct Stopped {};

/// Stacks, kept between launches: making one is a system call.
class StackPool {
 public:
  std::byte* take() {
    if (free_.empty()) {
      void* memory = mmap(nullptr, Fiber::kStackBytes + kGuard, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory == MAP_FAILED) {
        throw std::bad_alloc();
      }
      mprotect(memory, kGuard, PROT_NONE);  // an overflow faults instead of spreading
      return static_cast<std::byte*>(memory) + kGuard;
    }
    std::byte* stack = free_.back();
    free_.pop_back();
    return stack;
  }
  void give(std::byte* stack) { free_.push_back(stack); }

 private:
  static constexpr std::size_t kGuard = 4096;
  std::vector<std::byte*> free_;
};

/// The thread_local variables of the program in this thread: what kernels call __shared__. The
/// emulation's own thread has no other use for them.
struct SharedStorage {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
};

SharedStorage find_shared_storage() {
  SharedStorage found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        if (info->dlpi_name[0] != '\0') {
          return 0;  // a library
        }
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          if (info->dlpi_phdr[i].p_type == PT_TLS) {
            *static_cast<SharedStorage*>(result) = {static_cast<std::byte*>(info->dlpi_tls_data),
                                                    info->dlpi_phdr[i].p_memsz};
          }
        }
        return 1;
      },
      &found);
  return found;
}

unsigned char* dynamic_memory() { return miniacc::ops::cuda::ptx::miniacc_dynamic_shared; }

struct Runner {
  const Launch* launch = nullptr;
  Schedule schedule;
  std::mt19937_64 random;
  std::vector<Thread> threads;
  std::vector<unsigned> order;
  StackPool stacks;
  SharedStorage shared;
  std::string trouble;
  Thread* current = nullptr;

  void start_block(const uint3& index);
  void run_block();
  void run_thread(Thread& thread);
  void try_warp(unsigned warp, const WarpCall& call);
  void try_barrier();
  void stop(const std::string& what, const std::source_location* where);
  [[nodiscard]] std::string describe_waiting() const;
  void drop_fibers();
};

Runner& runner() {
  static Runner instance;
  return instance;
}

std::string place(const std::source_location& where) {
  std::ostringstream text;
  const std::string_view file = where.file_name();
  const std::size_t slash = file.rfind('/');
  text << (slash == std::string_view::npos ? file : file.substr(slash + 1)) << ":" << where.line();
  return text.str();
}

std::string describe(const uint3& index) {
  std::ostringstream text;
  text << "(" << index.x << "," << index.y << "," << index.z << ")";
  return text.str();
}

void Runner::stop(const std::string& what, const std::source_location* where) {
  if (!trouble.empty()) {
    return;  // what came first says most
  }
  std::ostringstream text;
  text << "block " << describe(blockIdx);
  if (current != nullptr) {
    text << " thread " << describe(current->view.thread_index);
  }
  text << ": " << what;
  if (where != nullptr) {
    text << " at " << place(*where);
  }
  trouble = text.str();
}

void fiber_entry(void* argument) {
  auto& thread = *static_cast<Thread*>(argument);
  try {
    runner().launch->body();
  } catch (const Stopped&) {
    // The trouble is recorded.
  } catch (const std::exception& error) {
    runner().stop(std::string("exception in a kernel: ") + error.what(), nullptr);
  }
  thread.state = State::kDone;
  thread.fiber->resume_caller(/*last=*/true);
}

void Runner::start_block(const uint3& index) {
  blockIdx = index;
  blockDim = launch->block;
  gridDim = launch->grid;
  // 0xFF is a NaN in every float format and -1 as an integer: what a kernel reads before it has
  // written it shows in the result.
  unsigned char* dynamic = dynamic_memory();
  std::byte* begin = shared.begin;
  std::byte* end = begin + shared.bytes;
  auto* dynamic_begin = reinterpret_cast<std::byte*>(dynamic);
  auto* dynamic_end = dynamic_begin + sizeof(miniacc::ops::cuda::ptx::miniacc_dynamic_shared);
  std::memset(begin, 0xFF, static_cast<std::size_t>(dynamic_begin - begin));
  std::memset(dynamic_end, 0xFF, static_cast<std::size_t>(end - dynamic_end));
  std::memset(dynamic, 0xFF, std::min(launch->dynamic_bytes + 4096, kMaxDynamicShared) + 256);

  const dim3 block = launch->block;
  const unsigned count = block.x * block.y * block.z;
  threads.resize(count);
  for (unsigned i = 0; i < count; ++i) {
    Thread& thread = threads[i];
    thread.view.thread_index = {i % block.x, i / block.x % block.y, i / block.x / block.y};
    thread.view.lane = i % kLanes;
    thread.view.open_copies.clear();
    thread.view.copy_groups.clear();
    thread.state = State::kNew;
    thread.number = i;
    thread.call = nullptr;
  }
  order.resize(count);
  std::iota(order.begin(), order.end(), 0U);
  if (schedule.threads == Order::kReverse) {
    std::reverse(order.begin(), order.end());
  }
}

void Runner::run_thread(Thread& thread) {
  if (thread.state == State::kNew) {
    thread.fiber = std::make_unique<Fiber>(stacks.take(), fiber_entry, &thread);
    thread.state = State::kReady;
  }
  current = &thread;
  this_thread = &thread.view;
  threadIdx = thread.view.thread_index;
  thread.fiber->resume();
  this_thread = nullptr;
  current = nullptr;
  if (thread.state == State::kDone) {
    stacks.give(thread.fiber->stack());
    thread.fiber.reset();
    // Those who waited for this lane need not any longer.
    const unsigned warp = thread.number / kLanes;
    const auto end = std::min<std::size_t>((warp + 1) * kLanes, threads.size());
    try {
      for (std::size_t i = warp * kLanes; i < end && trouble.empty(); ++i) {
        if (threads[i].state == State::kAtWarp) {
          try_warp(warp, *threads[i].call);
        }
      }
    } catch (const Stopped&) {
      // The trouble is recorded.
    }
  }
}

void Runner::try_warp(unsigned warp, const WarpCall& call) {
  std::array<const void*, kLanes> inputs{};
  std::array<Thread*, kLanes> lanes{};
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const std::size_t number = static_cast<std::size_t>(warp) * kLanes + lane;
    if ((call.mask >> lane & 1U) == 0 || number >= threads.size()) {
      continue;
    }
    Thread& thread = threads[number];
    if (thread.state == State::kDone) {
      continue;  // shfl.sync and its like wait for lanes that still run
    }
    if (thread.state != State::kAtWarp) {
      return;
    }
    if (thread.call->mask != call.mask || std::strcmp(thread.call->name, call.name) != 0) {
      stop(std::string("lanes of a warp wait for each other in different calls: ") + call.name +
               " and " + thread.call->name + " (" + place(thread.call->where) + ")",
           &call.where);
      return;
    }
    lanes[lane] = &thread;
    inputs[lane] = thread.call->input;
  }
  for (Thread* thread : lanes) {
    if (thread != nullptr) {
      thread->call->compute(*thread->call, inputs);
    }
  }
  for (Thread* thread : lanes) {
    if (thread != nullptr) {
      thread->state = State::kReady;
    }
  }
}

void Runner::try_barrier() {
  int count = 0;
  bool all = true;
  for (const Thread& thread : threads) {
    if (thread.state != State::kAtBlock) {
      return;
    }
    if (thread.where.line() != threads.front().where.line() ||
        std::strcmp(thread.where.file_name(), threads.front().where.file_name()) != 0) {
      stop("divergent barrier: threads wait at " + place(threads.front().where) + " and at " +
               place(thread.where),
           nullptr);
      return;
    }
    count += thread.predicate ? 1 : 0;
    all = all && thread.predicate;
  }
  for (Thread& thread : threads) {
    thread.vote_result = thread.vote == Vote::kAnd  ? (all ? 1 : 0)
                         : thread.vote == Vote::kOr ? (count > 0 ? 1 : 0)
                                                    : count;
    thread.state = State::kReady;
  }
}

std::string Runner::describe_waiting() const {
  unsigned done = 0;
  unsigned at_block = 0;
  unsigned at_warp = 0;
  const Thread* barrier = nullptr;
  const Thread* warp = nullptr;
  for (const Thread& thread : threads) {
    done += thread.state == State::kDone ? 1 : 0;
    if (thread.state == State::kAtBlock) {
      ++at_block;
      barrier = &thread;
    } else if (thread.state == State::kAtWarp) {
      ++at_warp;
      warp = &thread;
    }
  }
  std::ostringstream text;
  text << (at_block > 0 ? "divergent barrier: " : "deadlock: ") << threads.size() << " threads, "
       << done << " have ended";
  if (at_block > 0) {
    text << ", " << at_block << " wait at __syncthreads (" << place(barrier->where) << ")";
  }
  if (at_warp > 0) {
    text << ", " << at_warp << " wait in " << warp->call->name << " (" << place(warp->call->where)
         << ")";
  }
  return text.str();
}

void Runner::run_block() {
  while (trouble.empty()) {
    if (schedule.threads == Order::kRandom) {
      std::shuffle(order.begin(), order.end(), random);
    }
    bool progress = false;
    unsigned done = 0;
    for (const unsigned number : order) {
      Thread& thread = threads[number];
      if (thread.state == State::kNew || thread.state == State::kReady) {
        progress = true;
        run_thread(thread);
        if (!trouble.empty()) {
          break;
        }
      }
      done += thread.state == State::kDone ? 1 : 0;
    }
    if (done == threads.size()) {
      break;
    }
    if (trouble.empty()) {
      const bool any_ready = std::any_of(threads.begin(), threads.end(), [](const Thread& thread) {
        return thread.state == State::kReady || thread.state == State::kNew;
      });
      if (!any_ready) {
        try_barrier();
        const bool released = std::any_of(threads.begin(), threads.end(), [](const Thread& thread) {
          return thread.state == State::kReady;
        });
        if (!released && !progress) {
          stop(describe_waiting(), nullptr);
        }
      }
    }
  }
  drop_fibers();
  if (trouble.empty()) {
    const unsigned char* canary = dynamic_memory() + launch->dynamic_bytes;
    if (!std::all_of(canary, canary + 256, [](unsigned char byte) { return byte == 0xFF; })) {
      stop("written behind the dynamic shared memory of " + std::to_string(launch->dynamic_bytes) +
               " bytes",
           nullptr);
    }
  }
}

/// After trouble fibers are left where they stand: kernels own nothing.
void Runner::drop_fibers() {
  for (Thread& thread : threads) {
    if (thread.fiber) {
      stacks.give(thread.fiber->stack());
      thread.fiber.reset();
    }
  }
}

}  // namespace

int wait_for_block(Vote vote, bool predicate, const std::source_location& where) {
  Thread& thread = *runner().current;
  thread.state = State::kAtBlock;
  thread.vote = vote;
  thread.predicate = predicate;
  thread.where = where;
  thread.fiber->resume_caller();
  return thread.vote_result;
}

void wait_for_warp(WarpCall& call) {
  Runner& run = runner();
  Thread& thread = *run.current;
  if ((call.mask >> thread.view.lane & 1U) == 0) {
    stop_kernel("a lane calls for others: its own bit is not in the mask", call.where);
  }
  thread.state = State::kAtWarp;
  thread.call = &call;
  run.try_warp(thread.number / kLanes, call);
  if (thread.state != State::kReady || !run.trouble.empty()) {
    thread.fiber->resume_caller();
  }
  thread.call = nullptr;
}

void stop_kernel(const char* trouble, const std::source_location& where) {
  runner().stop(trouble, &where);
  throw Stopped{};
}

void stop_after_fault(const char* trouble) {
  Runner& run = runner();
  if (this_thread == nullptr || run.current == nullptr) {
    return;
  }
  run.stop(trouble, nullptr);
  // Leaves the handler by the stack switch; the signal is not blocked (SA_NODEFER).
  run.current->state = State::kDone;
  run.current->fiber->resume_caller(/*last=*/true);
}

bool is_shared_memory(const void* data, std::size_t bytes) {
  const Runner& run = runner();
  const auto* begin = static_cast<const std::byte*>(data);
  return begin >= run.shared.begin && begin + bytes <= run.shared.begin + run.shared.bytes;
}

std::optional<std::string> run_launch(const Launch& launch, const Schedule& schedule,
                                      std::uint64_t number) {
  Runner& run = runner();
  if (run.shared.begin == nullptr) {
    run.shared = find_shared_storage();
  }
  run.launch = &launch;
  run.schedule = schedule;
  run.random.seed(schedule.seed * 1000003 + number);
  run.trouble.clear();
  const dim3 grid = launch.grid;
  const std::uint64_t blocks = static_cast<std::uint64_t>(grid.x) * grid.y * grid.z;
  // A random order of blocks: an affine walk, as a list of millions would be one allocation more.
  std::uint64_t step = 1;
  std::uint64_t first = 0;
  if (schedule.threads == Order::kRandom) {
    do {
      step = run.random() % blocks + 1;
    } while (std::gcd(step, blocks) != 1);
    first = run.random() % blocks;
  }
  for (std::uint64_t i = 0; i < blocks && run.trouble.empty(); ++i) {
    const std::uint64_t block =
        schedule.threads == Order::kReverse ? blocks - 1 - i : (first + i % blocks * step) % blocks;
    run.start_block({static_cast<unsigned>(block % grid.x),
                     static_cast<unsigned>(block / grid.x % grid.y),
                     static_cast<unsigned>(block / grid.x / grid.y)});
    run.run_block();
  }
  run.launch = nullptr;
  if (run.trouble.empty()) {
    return std::nullopt;
  }
  return run.trouble;
}

}  // namespace cuda_emulation
