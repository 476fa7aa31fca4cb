#include "runtime/cuda_weight_ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "device/cuda_device.h"
#include "device/device_error.h"

namespace miniacc {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// Bytes as a view, which is what copies take.
ConstTensorView host_bytes(const std::byte* data, std::size_t size) {
  return ConstTensorView(data, {static_cast<std::int64_t>(size)}, DType::kI8);
}

}  // namespace

Result<std::unique_ptr<HostRecords>> HostRecords::create(Device& pinned_host,
                                                         std::size_t layer_bytes,
                                                         const std::vector<bool>& pinned,
                                                         std::int64_t num_staging) {
  MINIACC_REQUIRE(!pinned.empty() && layer_bytes > 0 && num_staging > 0,
                  "HostRecords: layers, bytes and staging records are positive");
  std::unique_ptr<HostRecords> records(new HostRecords(layer_bytes));
  records->layers_.resize(pinned.size());
  if (std::find(pinned.begin(), pinned.end(), false) != pinned.end()) {
    for (std::int64_t i = 0; i < num_staging; ++i) {
      MINIACC_ASSIGN(Buffer memory, pinned_host.allocate(layer_bytes));
      records->staging_.push_back(std::move(memory));
    }
  }
  for (std::size_t layer = 0; layer < pinned.size(); ++layer) {
    if (!pinned[layer]) {
      continue;
    }
    auto memory = pinned_host.allocate(layer_bytes);
    if (memory) {
      records->layers_[layer].memory = *std::move(memory);
      continue;
    }
    // The system pins less than it has: what is left is staged.
    while (static_cast<std::int64_t>(records->staging_.size()) < num_staging) {
      auto staging = pinned_host.allocate(layer_bytes);
      if (staging) {
        records->staging_.push_back(*std::move(staging));
        continue;
      }
      const auto last =
          std::find_if(records->layers_.rbegin(), records->layers_.rend(),
                       [](const Record& record) { return record.memory.data() != nullptr; });
      if (last == records->layers_.rend()) {
        return tl::unexpected(std::move(staging).error());
      }
      records->staging_.push_back(std::move(last->memory));
      last->memory = Buffer();
    }
    break;
  }
  return records;
}

std::int64_t HostRecords::num_pinned() const {
  return std::count_if(layers_.begin(), layers_.end(),
                       [](const Record& record) { return record.memory.data() != nullptr; });
}

std::size_t HostRecords::pinned_bytes() const {
  std::size_t bytes = 0;
  for (const Record& record : layers_) {
    bytes += record.memory.size_bytes();
  }
  for (const Buffer& buffer : staging_) {
    bytes += buffer.size_bytes();
  }
  return bytes;
}

WeightRing::WeightRing(Device& device, HostRecords& records, Options options, Fill fill)
    : device_(device), records_(records), options_(std::move(options)), fill_(std::move(fill)) {}

Result<std::unique_ptr<WeightRing>> WeightRing::create(Device& device, HostRecords& records,
                                                       Options options, Fill fill) {
  const RingPlan& plan = options.plan;
  MINIACC_REQUIRE(device.id().kind == DeviceKind::kCuda, "WeightRing: feeds a CUDA device");
  MINIACC_REQUIRE(plan.num_layers() > 0 && plan.num_layers() == records.num_layers() &&
                      plan.layer_bytes == records.layer_bytes(),
                  "WeightRing: records of the same layers");
  MINIACC_REQUIRE(plan.num_streamed() == 0 || plan.num_slots > 0,
                  "WeightRing: streamed layers pass through slots");
  std::unique_ptr<WeightRing> ring(
      new WeightRing(device, records, std::move(options), std::move(fill)));
  MINIACC_RETURN_IF_ERROR(ring->take_memory());
  ring->start_reader();
  return ring;
}

Status WeightRing::take_memory() {
  const RingPlan& plan = options_.plan;
  const int ordinal = device_.id().ordinal;
  std::int64_t num_resident = 0;
  std::int64_t num_streamed = 0;
  for (std::int64_t layer = 0; layer < plan.num_layers(); ++layer) {
    const bool resident = is_resident(layer);
    resident_place_.push_back(resident ? num_resident++ : -1);
    slot_order_.push_back(resident ? -1 : num_streamed++);
  }
  if (num_resident > 0) {
    MINIACC_ASSIGN(residents_memory_,
                   device_.allocate(static_cast<std::size_t>(num_resident) * plan.layer_bytes));
  }
  if (plan.num_slots > 0) {
    MINIACC_ASSIGN(slots_memory_,
                   device_.allocate(static_cast<std::size_t>(plan.num_slots) * plan.layer_bytes));
  }
  copies_ = cuda::make_stream(ordinal);
  for (std::int64_t i = 0; i < num_resident; ++i) {
    residents_.push_back({.ready = cuda::make_event(ordinal)});
  }
  for (std::int64_t i = 0; i < plan.num_slots; ++i) {
    Slot slot;
    slot.ready = cuda::make_event(ordinal);
    slot.free = cuda::make_event(ordinal);
    slots_.push_back(std::move(slot));
  }
  for (std::size_t i = 0; i < records_.staging_.size(); ++i) {
    Staged staged;
    staged.copied = cuda::make_event(ordinal);
    staging_.push_back(std::move(staged));
  }
  return {};
}

void WeightRing::start_reader() {
  std::vector<bool> residents_to_read;
  for (std::int64_t layer = 0; layer < options_.plan.num_layers(); ++layer) {
    residents_to_read.push_back(
        is_resident(layer) &&
        !residents_[static_cast<std::size_t>(resident_place_[static_cast<std::size_t>(layer)])]
             .copied);
  }
  reader_ = std::thread(
      [this, todo = std::move(residents_to_read)]() mutable { read_ahead(std::move(todo)); });
}

void WeightRing::stop_reader() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (reader_.joinable()) {
    reader_.join();
  }
}

WeightRing::~WeightRing() {
  stop_reader();
  if (copies_) {
    try {
      cuda::synchronize(copies_.get());  // a copy must not outlive the memory it reads
    } catch (const std::exception&) {    // sticks to the context: the next checked call reports it
    }
  }
}

void WeightRing::rewind(CUstream_st* compute) {
  stop_reader();
  cuda::synchronize(copies_.get());
  for (Slot& slot : slots_) {
    if (slot.step >= 0) {  // whatever reads it was given to `compute` before this call
      cuda::record(slot.free, compute);
      slot.used = true;
    }
    slot.step = -1;
  }
  for (Staged& staged : staging_) {
    staged.step = -1;
    staged.filled = false;
    staged.copying = false;
  }
  reader_error_.reset();
  stop_ = false;
  next_step_ = 0;
  next_issue_ = 0;
  start_reader();
}

WeightRing::Slot& WeightRing::slot_of(std::int64_t step) {
  const std::int64_t pass = step / options_.plan.num_layers();
  const std::int64_t order = slot_order_[static_cast<std::size_t>(layer_of(step))];
  return slots_[static_cast<std::size_t>((pass * options_.plan.num_streamed() + order) %
                                         options_.plan.num_slots)];
}

std::byte* WeightRing::device_place(std::int64_t step) {
  const std::int64_t resident = resident_place_[static_cast<std::size_t>(layer_of(step))];
  if (resident >= 0) {
    return static_cast<std::byte*>(residents_memory_.data()) +
           static_cast<std::size_t>(resident) * options_.plan.layer_bytes;
  }
  return static_cast<std::byte*>(slots_memory_.data()) +
         static_cast<std::size_t>(&slot_of(step) - slots_.data()) * options_.plan.layer_bytes;
}

Result<const std::byte*> WeightRing::record_of(std::int64_t step, bool must,
                                               const CancelToken* cancel, std::ptrdiff_t& staged) {
  constexpr auto kLookAtCancel = std::chrono::milliseconds(50);
  const auto layer = static_cast<std::size_t>(layer_of(step));
  staged = -1;
  std::unique_lock lock(mutex_);
  const auto find = [&]() -> const std::byte* {
    HostRecords::Record& record = records_.layers_[layer];
    if (record.memory.data() != nullptr) {
      return record.filled ? static_cast<const std::byte*>(record.memory.data()) : nullptr;
    }
    for (std::size_t i = 0; i < staging_.size(); ++i) {
      if (staging_[i].step == step && staging_[i].filled) {
        staged = static_cast<std::ptrdiff_t>(i);
        return static_cast<const std::byte*>(records_.staging_[i].data());
      }
    }
    return nullptr;
  };
  const std::byte* found = find();
  if (found == nullptr && must) {
    const auto begin = Clock::now();
    while (!changed_.wait_for(lock, kLookAtCancel, [&] {
      found = find();
      return found != nullptr || reader_error_.has_value();
    })) {
      if (cancel != nullptr) {
        cancel->check();
      }
    }
    counters_.host_wait_ms += milliseconds_since(begin);
  }
  if (found == nullptr && reader_error_) {
    return tl::unexpected(*reader_error_);
  }
  return found;
}

Result<bool> WeightRing::issue(std::int64_t step, bool must, const CancelToken* cancel) {
  const std::int64_t layer = layer_of(step);
  Slot* slot = nullptr;
  Resident* resident = nullptr;
  if (is_resident(layer)) {
    resident =
        &residents_[static_cast<std::size_t>(resident_place_[static_cast<std::size_t>(layer)])];
    if (resident->copied) {
      return true;
    }
  } else {
    slot = &slot_of(step);
    if (slot->step >= next_step_) {
      return false;  // its layer is still to be used
    }
  }
  std::ptrdiff_t staged = -1;
  MINIACC_ASSIGN(const std::byte* record, record_of(step, must, cancel, staged));
  if (record == nullptr) {
    return false;
  }
  const ConstTensorView from = host_bytes(record, options_.plan.layer_bytes);
  if (slot != nullptr && slot->used) {
    cuda::wait(copies_.get(), slot->free);
  }
  cuda::copy_async(TensorView(device_place(step), from.shape, from.dtype, device_.id()), from,
                   copies_.get());
  cuda::record(slot != nullptr ? slot->ready : resident->ready, copies_.get());
  if (slot != nullptr) {
    slot->step = step;
  } else {
    resident->copied = true;
  }
  counters_.bytes_copied += options_.plan.layer_bytes;
  ++counters_.copies;
  if (staged >= 0) {
    const std::scoped_lock lock(mutex_);
    Staged& used = staging_[static_cast<std::size_t>(staged)];
    cuda::record(used.copied, copies_.get());
    used.filled = false;
    used.copying = true;
    changed_.notify_all();
  }
  return true;
}

Result<void*> WeightRing::acquire(std::int64_t index, CUstream_st* compute,
                                  const CancelToken* cancel) {
  if (index == 0) {
    const bool begun = layer_of(next_step_) != 0;
    const bool broken = [&] {
      const std::scoped_lock lock(mutex_);
      return reader_error_.has_value();
    }();
    if (begun || broken) {
      rewind(compute);
    }
  }
  const std::int64_t step = next_step_;
  MINIACC_REQUIRE(index == layer_of(step), "WeightRing: layers are acquired in order");
  if (step > 0 && !is_resident(layer_of(step - 1))) {
    Slot& before = slot_of(step - 1);
    if (before.step == step - 1) {
      cuda::record(before.free, compute);
      before.used = true;
    }
  }
  // Slots of earlier steps may be overwritten from here on, in the order of the events.
  for (; next_issue_ <= step; ++next_issue_) {
    MINIACC_ASSIGN(const bool issued, issue(next_issue_, /*must=*/true, cancel));
    MINIACC_REQUIRE(issued, "WeightRing: the slot of the step in hand is free");
  }
  // At most one pass ahead: with every layer resident there is nothing to wait for.
  while (next_issue_ < step + options_.plan.num_layers()) {
    MINIACC_ASSIGN(const bool issued, issue(next_issue_, /*must=*/false, cancel));
    if (!issued) {
      break;
    }
    ++next_issue_;
  }
  const cuda::Event& ready =
      is_resident(index)
          ? residents_[static_cast<std::size_t>(resident_place_[static_cast<std::size_t>(index)])]
                .ready
          : slot_of(step).ready;
  if (options_.measure_stalls) {
    const int ordinal = device_.id().ordinal;
    Stall stall{cuda::make_event(ordinal, cuda::EventTiming::kOn),
                cuda::make_event(ordinal, cuda::EventTiming::kOn)};
    cuda::record(stall.begin, compute);
    cuda::wait(compute, ready);
    cuda::record(stall.end, compute);
    stalls_.push_back(std::move(stall));
  } else {
    cuda::wait(compute, ready);
  }
  next_step_ = step + 1;
  return static_cast<void*>(device_place(step));
}

StreamCounters WeightRing::counters() {
  for (const Stall& stall : stalls_) {
    cuda::synchronize(stall.end);
    counters_.stall_ms += static_cast<double>(cuda::elapsed_ms(stall.begin, stall.end));
  }
  stalls_.clear();
  const std::scoped_lock lock(mutex_);
  counters_.records_read = records_read_;
  return counters_;
}

Status WeightRing::read_pinned(std::int64_t layer) {
  HostRecords::Record& record = records_.layers_[static_cast<std::size_t>(layer)];
  {
    const std::scoped_lock lock(mutex_);
    if (record.filled) {
      return {};
    }
  }
  MINIACC_RETURN_IF_ERROR(
      fill_(layer, {static_cast<std::byte*>(record.memory.data()), options_.plan.layer_bytes}));
  const std::scoped_lock lock(mutex_);
  record.filled = true;
  ++records_read_;
  changed_.notify_all();
  return {};
}

/// False when the ring ends.
Result<bool> WeightRing::read_staged(std::int64_t step, std::size_t index) {
  Staged& staged = staging_[index];
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stop_ || !staged.filled; });
    if (stop_) {
      return false;
    }
  }
  if (staged.copying) {  // only this thread clears it, and it was set under the lock
    cuda::synchronize(staged.copied);
  }
  MINIACC_RETURN_IF_ERROR(
      fill_(layer_of(step),
            {static_cast<std::byte*>(records_.staging_[index].data()), options_.plan.layer_bytes}));
  const std::scoped_lock lock(mutex_);
  staged.step = step;
  staged.filled = true;
  staged.copying = false;
  ++records_read_;
  changed_.notify_all();
  return true;
}

void WeightRing::read_ahead(std::vector<bool> residents_to_read) {
  const auto fail_with = [&](Error error) {
    const std::scoped_lock lock(mutex_);
    reader_error_ = std::move(error);
    changed_.notify_all();
  };
  try {
    std::size_t next = 0;
    const std::int64_t num_layers = options_.plan.num_layers();
    // Ends when a whole pass staged nothing: all is resident or pinned from there on.
    bool staged_any = true;
    for (std::int64_t step = 0; step % num_layers != 0 || staged_any; ++step) {
      const std::int64_t layer = layer_of(step);
      const auto at = static_cast<std::size_t>(layer);
      staged_any = staged_any && layer != 0;
      {
        const std::scoped_lock lock(mutex_);
        if (stop_) {
          return;
        }
      }
      if (is_resident(layer) && !residents_to_read[at]) {
        continue;
      }
      residents_to_read[at] = false;
      if (has_record(layer)) {
        if (const Status read = read_pinned(layer); !read) {
          fail_with(read.error());
          return;
        }
        continue;
      }
      staged_any = true;
      const auto read = read_staged(step, next++ % staging_.size());
      if (!read) {
        fail_with(read.error());
        return;
      }
      if (!*read) {
        return;
      }
    }
  } catch (const ErrorException& error) {
    fail_with(error.error());
  } catch (const std::exception& error) {
    fail_with({ErrorCode::kInternal, fmt::format("reading weights ahead: {}", error.what())});
  }
}

}  // namespace miniacc
