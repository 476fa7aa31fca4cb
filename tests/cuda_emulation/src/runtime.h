#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "block_runner.h"
#include "device_memory.h"
#include "emulation.h"

struct CUevent_st {};
struct CUstream_st {};

namespace cuda_emulation {

/// One recording of an event: reached once the stream's work before it is done.
struct Record {
  bool reached = false;
  double at_ms = 0.0;
  std::size_t stream = 0;  ///< index of the queue it stands in
};

struct Operation {
  std::function<std::optional<std::string>()> run = {};  ///< trouble, or nothing
  std::shared_ptr<Record> wait = {};                     ///< may start once this is reached
  std::shared_ptr<Record> reach = {};                    ///< done with it
};

/// Work given to a stream and not carried out yet. Outlives the stream's handle, as in CUDA.
struct Queue {
  std::deque<Operation> work;
};

struct Stream : CUstream_st {
  std::size_t queue = 0;
  bool with_default = false;  ///< ordered with the default stream
};

struct Event : CUevent_st {
  bool timing = true;
  std::shared_ptr<Record> last;
};

/// The one runtime of the process; `mutex` guards everything. The functions of the API lock it.
class Runtime {
 public:
  static Runtime& get();
  ~Runtime();

  std::recursive_mutex mutex;
  Machine machine;
  Schedule plan;
  DeviceMemory memory;
  std::map<const void*, std::size_t> pinned;
  std::map<CUstream_st*, std::unique_ptr<Stream>> streams;
  std::map<CUevent_st*, std::unique_ptr<Event>> events;
  std::map<const void*, std::size_t> dynamic_limits;  ///< by kernel
  std::vector<std::string> trouble;                   ///< the reports
  std::size_t other_bytes = 0;
  std::size_t later_other_bytes = 0;
  std::uint64_t later_other_at = 0;  ///< allocations from now, 0: never
  std::size_t peak = 0;

  void reset(const Machine& described);

  /// Counts a call and says whether it is the one that has to fail.
  bool fails(Call kind);
  std::array<std::uint64_t, 9> calls{};
  std::array<std::uint64_t, 9> fail_in{};
  bool has_failed = false;

  /// The last error of a host thread is kept by the caller; a sticky one stays until reset().
  cudaError_t sticky = cudaSuccess;

  /// Appends to the queue of `stream`; cudaErrorInvalidResourceHandle for an unknown one.
  cudaError_t enqueue(CUstream_st* stream, Operation operation);
  std::size_t next_queue() {
    queues_.emplace_back();
    return queues_.size() - 1;
  }
  [[nodiscard]] bool is_pinned(const void* data) const;
  /// Queue of a stream, or empty.
  std::optional<std::size_t> queue_of(CUstream_st* stream) const;
  /// Carries work out until `done` says so; gives the sticky error.
  cudaError_t run_until(std::size_t queue, const std::function<bool()>& done);
  cudaError_t run_queue(std::size_t queue);
  cudaError_t run_all();
  [[nodiscard]] bool idle(std::size_t queue) const { return queues_[queue].work.empty(); }
  void stop_with(cudaError_t error, const std::string& what);

 private:
  Runtime();
  /// What is given to queue `to` from here on runs behind what `from` holds.
  void order_behind(std::size_t from, std::size_t to);
  void on_worker(const std::function<void()>& body);
  void worker_loop();
  void run_late(std::size_t queue, const std::function<bool()>& done);
  void run_mixed(const std::function<bool()>& done);
  void run_first(std::size_t queue);
  [[nodiscard]] bool can_run(std::size_t queue) const;

  std::vector<Queue> queues_;
  std::mt19937_64 random_;

  std::thread worker_;
  std::mutex worker_mutex_;
  std::condition_variable worker_wakes_;
  const std::function<void()>* job_ = nullptr;
  bool stopping_ = false;
};

/// Most dynamic shared memory a block may ask for, by compute capability (CUDA programming guide,
/// table of technical specifications).
std::size_t most_dynamic_shared(const Machine& machine);

}  // namespace cuda_emulation
