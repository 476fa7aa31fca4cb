#include "runtime.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string_view>

namespace cuda_emulation {
namespace {

struct sigaction previous_handler;

/// A fault inside a kernel is the kernel's error; one of host code in the card's memory ends the
/// program with a sentence that says so; any other goes where it went before.
void on_fault(int signal, siginfo_t* info, void* context) {
  stop_after_fault("memory fault: an address that the kernel may not use");
  Runtime& runtime = Runtime::get();
  if (runtime.memory.owns(info->si_addr)) {
    constexpr std::string_view kText =
        "cuda_emulation: host code touched device memory (or device memory was used after it was "
        "freed); copy it first\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, kText.data(), kText.size());
  }
  if ((previous_handler.sa_flags & SA_SIGINFO) != 0 && previous_handler.sa_sigaction != nullptr) {
    previous_handler.sa_sigaction(signal, info, context);
    return;
  }
  struct sigaction fallback {};
  fallback.sa_handler = SIG_DFL;
  sigaction(signal, &fallback, nullptr);
  raise(signal);
}

double now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

template <typename T, std::size_t kSize>
std::optional<T> parse(std::string_view text,
                       const std::array<std::pair<std::string_view, T>, kSize>& names) {
  for (const auto& [name, value] : names) {
    if (text == name) {
      return value;
    }
  }
  return std::nullopt;
}

[[noreturn]] void refuse_setting(std::string_view setting) {
  std::fprintf(stderr, "MINIACC_CUDA_EMULATION: '%.*s' is no setting; README.md lists them\n",
               static_cast<int>(setting.size()), setting.data());
  std::exit(2);
}

/// Settings of the environment: programs that are run as a whole have no other way in.
void apply_environment(Runtime& runtime) {
  const char* text = std::getenv("MINIACC_CUDA_EMULATION");
  if (text == nullptr) {
    return;
  }
  constexpr std::array kOrders = {std::pair{std::string_view("forward"), Order::kForward},
                                  std::pair{std::string_view("reverse"), Order::kReverse},
                                  std::pair{std::string_view("random"), Order::kRandom}};
  constexpr std::array kStreams = {std::pair{std::string_view("late"), Streams::kLate},
                                   std::pair{std::string_view("random"), Streams::kRandom},
                                   std::pair{std::string_view("at-once"), Streams::kAtOnce}};
  constexpr std::array kCalls = {std::pair{std::string_view("fail-allocation"), Call::kAllocate},
                                 std::pair{std::string_view("fail-copy"), Call::kCopy},
                                 std::pair{std::string_view("fail-launch"), Call::kLaunch},
                                 std::pair{std::string_view("fail-any"), Call::kAny}};
  std::istringstream settings(text);
  for (std::string setting; std::getline(settings, setting, ',');) {
    const std::size_t equals = setting.find('=');
    const std::string key = setting.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : setting.substr(equals + 1);
    char* end = nullptr;
    const std::uint64_t number = std::strtoull(value.c_str(), &end, 10);
    const bool is_number = !value.empty() && *end == '\0';
    if (const auto call = parse(key, kCalls); call && is_number) {
      runtime.fail_in[static_cast<std::size_t>(*call)] = number;
    } else if (const auto order = parse(value, kOrders); key == "threads" && order) {
      runtime.plan.threads = *order;
    } else if (const auto streams = parse(value, kStreams); key == "streams" && streams) {
      runtime.plan.streams = *streams;
    } else if (key == "seed" && is_number) {
      runtime.plan.seed = number;
    } else if (key == "devices" && is_number) {
      runtime.machine.num_devices = static_cast<int>(number);
    } else if (key == "driver" && is_number) {
      runtime.machine.driver_version = static_cast<int>(number);
    } else if (key == "compute" && is_number) {  // 90 is 9.0
      runtime.machine.compute_major = static_cast<int>(number / 10);
      runtime.machine.compute_minor = static_cast<int>(number % 10);
    } else if (key == "memory" && is_number) {
      runtime.machine.total_bytes = number;
    } else if (key == "others" && is_number) {
      runtime.other_bytes = number;
    } else {
      refuse_setting(setting);
    }
  }
}

}  // namespace

Runtime& Runtime::get() {
  static Runtime instance;
  return instance;
}

Runtime::Runtime() {
  queues_.resize(1);  // of the default stream
  apply_environment(*this);
  random_.seed(plan.seed);
  struct sigaction handler {};
  handler.sa_sigaction = on_fault;
  handler.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &handler, &previous_handler);
  worker_ = std::thread([this] { worker_loop(); });
}

Runtime::~Runtime() {
  {
    const std::lock_guard lock(worker_mutex_);
    stopping_ = true;
  }
  worker_wakes_.notify_all();
  worker_.join();
}

void Runtime::worker_loop() {
  std::unique_lock lock(worker_mutex_);
  while (true) {
    worker_wakes_.wait(lock, [this] { return job_ != nullptr || stopping_; });
    if (stopping_) {
      return;
    }
    (*job_)();
    job_ = nullptr;
    worker_wakes_.notify_all();
  }
}

void Runtime::on_worker(const std::function<void()>& body) {
  std::unique_lock lock(worker_mutex_);
  job_ = &body;
  worker_wakes_.notify_all();
  worker_wakes_.wait(lock, [this] { return job_ == nullptr; });
}

void Runtime::reset(const Machine& described) {
  const std::lock_guard lock(mutex);
  for (Queue& queue : queues_) {
    queue.work.clear();
  }
  queues_.resize(1);
  streams.clear();
  events.clear();
  memory.free_all();
  for (const auto& [data, bytes] : pinned) {
    std::free(const_cast<void*>(data));
  }
  pinned.clear();
  dynamic_limits.clear();
  trouble.clear();
  calls.fill(0);
  fail_in.fill(0);
  has_failed = false;
  other_bytes = later_other_bytes = peak = 0;
  later_other_at = 0;
  sticky = cudaSuccess;
  machine = described;
  random_.seed(plan.seed);
}

bool Runtime::fails(Call kind) {
  bool hit = false;
  for (const Call each : {kind, Call::kAny}) {
    const auto at = static_cast<std::size_t>(each);
    ++calls[at];
    if (fail_in[at] > 0 && --fail_in[at] == 0) {
      hit = true;
    }
  }
  has_failed = has_failed || hit;
  return hit;
}

void Runtime::stop_with(cudaError_t error, const std::string& what) {
  sticky = error;
  trouble.push_back(what);
  std::fprintf(stderr, "cuda_emulation: %s\n", what.c_str());
}

std::optional<std::size_t> Runtime::queue_of(CUstream_st* stream) const {
  if (stream == nullptr) {
    return 0;
  }
  const auto found = streams.find(stream);
  return found == streams.end() ? std::nullopt : std::optional(found->second->queue);
}

bool Runtime::is_pinned(const void* data) const {
  return std::any_of(pinned.begin(), pinned.end(), [&](const auto& entry) {
    const auto* begin = static_cast<const std::byte*>(entry.first);
    return data >= begin && data < begin + entry.second;
  });
}

void Runtime::order_behind(std::size_t from, std::size_t to) {
  if (idle(from)) {
    return;
  }
  const auto done = std::make_shared<Record>(Record{.stream = from});
  queues_[from].work.push_back({.reach = done});
  queues_[to].work.push_back({.wait = done});
}

cudaError_t Runtime::enqueue(CUstream_st* stream, Operation operation) {
  const auto queue = queue_of(stream);
  if (!queue) {
    return cudaErrorInvalidResourceHandle;
  }
  if (stream == nullptr) {
    for (const auto& [handle, other] : streams) {
      if (other->with_default) {
        order_behind(other->queue, *queue);
      }
    }
  } else if (streams.at(stream)->with_default) {
    order_behind(0, *queue);
  }
  if (operation.reach) {
    operation.reach->stream = *queue;
  }
  queues_[*queue].work.push_back(std::move(operation));
  return plan.streams == Streams::kAtOnce ? run_queue(*queue) : cudaSuccess;
}

bool Runtime::can_run(std::size_t queue) const {
  const auto& work = queues_[queue].work;
  return !work.empty() && (!work.front().wait || work.front().wait->reached);
}

void Runtime::run_first(std::size_t queue) {
  Operation operation = std::move(queues_[queue].work.front());
  queues_[queue].work.pop_front();
  if (operation.run && sticky == cudaSuccess) {
    std::optional<std::string> what = operation.run();
    const bool fault = what && what->find("memory fault") != std::string::npos;
    if (!what) {
      what = memory.overrun();
    }
    if (what) {
      stop_with(fault ? cudaErrorIllegalAddress : cudaErrorLaunchFailure, *what);
    }
  }
  if (operation.reach) {
    operation.reach->reached = true;
    operation.reach->at_ms = now_ms();
  }
}

void Runtime::run_late(std::size_t queue, const std::function<bool()>& done) {
  while (!done() && !queues_[queue].work.empty()) {
    const std::shared_ptr<Record> wait = queues_[queue].work.front().wait;
    if (wait && !wait->reached) {
      run_late(wait->stream, [&] { return wait->reached; });
    }
    run_first(queue);
  }
}

void Runtime::run_mixed(const std::function<bool()>& done) {
  std::vector<std::size_t> candidates;
  while (!done()) {
    candidates.clear();
    for (std::size_t i = 0; i < queues_.size(); ++i) {
      if (can_run(i)) {
        candidates.push_back(i);
      }
    }
    if (candidates.empty()) {
      return;
    }
    run_first(candidates[random_() % candidates.size()]);
  }
}

cudaError_t Runtime::run_until(std::size_t queue, const std::function<bool()>& done) {
  if (!done()) {
    memory.open();
    on_worker([&] {
      if (plan.streams == Streams::kRandom) {
        run_mixed(done);
      } else {
        run_late(queue, done);
      }
    });
    memory.close();
  }
  return sticky;
}

cudaError_t Runtime::run_queue(std::size_t queue) {
  return queue < queues_.size() ? run_until(queue, [&] { return queues_[queue].work.empty(); })
                                : sticky;
}

cudaError_t Runtime::run_all() {
  for (std::size_t i = queues_.size(); i > 0; --i) {
    run_queue(i - 1);
  }
  return sticky;
}

int compute_capability() {
  const Machine& machine = Runtime::get().machine;  // the lock is held while kernels run
  return machine.compute_major * 10 + machine.compute_minor;
}

// ---- what tests call ----

namespace {
std::size_t index_of(Call kind) { return static_cast<std::size_t>(kind); }
}  // namespace

void reset(const Machine& machine) { Runtime::get().reset(machine); }

void set_schedule(const Schedule& schedule) {
  Runtime& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  runtime.plan = schedule;
}

Schedule schedule() {
  Runtime& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  return runtime.plan;
}

std::uint64_t num_calls(Call kind) {
  Runtime& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  return runtime.calls[index_of(kind)];
}

void fail_call(Call kind, std::uint64_t nth) {
  Runtime& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  runtime.fail_in[index_of(kind)] = nth;
  runtime.has_failed = false;
}

bool call_failed() {
  Runtime& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  return runtime.has_failed;
}

void set_other_programs_bytes(std::size_t bytes) {
  Runtime& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  runtime.other_bytes = bytes;
}

void let_others_take(std::size_t bytes, std::uint64_t nth_allocation) {
  Runtime& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  runtime.later_other_bytes = bytes;
  runtime.later_other_at = nth_allocation;
}

Held held() {
  Runtime& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  Held result{.allocations = runtime.memory.count(),
              .pinned = runtime.pinned.size(),
              .streams = runtime.streams.size(),
              .events = runtime.events.size()};
  for (int ordinal = 0; ordinal < runtime.machine.num_devices; ++ordinal) {
    result.bytes += runtime.memory.bytes_in_use(ordinal);
  }
  return result;
}

std::size_t peak_bytes() {
  Runtime& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  return runtime.peak;
}

std::vector<std::string> reports() {
  Runtime& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  return runtime.trouble;
}

}  // namespace cuda_emulation
