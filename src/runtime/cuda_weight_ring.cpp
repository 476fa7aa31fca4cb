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

WeightRing::WeightRing(Device& device, Options options, Fill fill)
    : device_(device), options_(std::move(options)), fill_(std::move(fill)) {}

Result<std::unique_ptr<WeightRing>> WeightRing::create(Device& device, Device& pinned_host,
                                                       Options options, Fill fill) {
  const RingPlan& plan = options.plan;
  MINIACC_REQUIRE(device.id().kind == DeviceKind::kCuda, "WeightRing: feeds a CUDA device");
  MINIACC_REQUIRE(plan.num_layers() > 0 && plan.layer_bytes > 0 && options.num_steps > 0,
                  "WeightRing: layers, bytes and steps are positive");
  MINIACC_REQUIRE(plan.num_streamed() == 0 || plan.num_slots > 0,
                  "WeightRing: streamed layers pass through slots");
  MINIACC_REQUIRE(options.num_staging > 0, "WeightRing: at least one staging record");
  std::unique_ptr<WeightRing> ring(new WeightRing(device, std::move(options), std::move(fill)));
  MINIACC_RETURN_IF_ERROR(ring->take_memory(pinned_host));
  MINIACC_RETURN_IF_ERROR(ring->fill_pinned());
  ring->reader_ = std::thread([raw = ring.get()] { raw->read_ahead(); });
  return ring;
}

Status WeightRing::take_memory(Device& pinned_host) {
  const RingPlan& plan = options_.plan;
  const int ordinal = device_.id().ordinal;
  std::int64_t num_resident = 0;
  std::int64_t num_streamed = 0;
  std::int64_t num_pinned = 0;
  const bool pin_residents = options_.pinned_layers >= plan.num_layers();
  for (std::int64_t layer = 0; layer < plan.num_layers(); ++layer) {
    const bool resident = is_resident(layer);
    resident_place_.push_back(resident ? num_resident++ : -1);
    slot_order_.push_back(resident ? -1 : num_streamed++);
    const bool pinned = (!resident || pin_residents) && num_pinned < options_.pinned_layers;
    pinned_record_.push_back(pinned ? num_pinned++ : -1);
  }
  if (num_resident > 0) {
    MINIACC_ASSIGN(residents_,
                   device_.allocate(static_cast<std::size_t>(num_resident) * plan.layer_bytes));
  }
  if (plan.num_slots > 0) {
    MINIACC_ASSIGN(slots_memory_,
                   device_.allocate(static_cast<std::size_t>(plan.num_slots) * plan.layer_bytes));
  }
  const bool stages = num_pinned < plan.num_layers();
  const std::int64_t num_staging = stages ? options_.num_staging : 0;
  MINIACC_ASSIGN(
      pinned_memory_,
      pinned_host.allocate(static_cast<std::size_t>(num_pinned + num_staging) * plan.layer_bytes));
  copies_ = cuda::make_stream(ordinal);
  for (std::int64_t i = 0; i < num_resident; ++i) {
    resident_ready_.push_back(cuda::make_event(ordinal));
  }
  for (std::int64_t i = 0; i < plan.num_slots; ++i) {
    Slot slot;
    slot.ready = cuda::make_event(ordinal);
    slot.free = cuda::make_event(ordinal);
    slots_.push_back(std::move(slot));
  }
  for (std::int64_t i = 0; i < num_staging; ++i) {
    Staged staged;
    staged.copied = cuda::make_event(ordinal);
    staging_.push_back(std::move(staged));
  }
  return {};
}

Status WeightRing::fill_pinned() {
  for (std::size_t layer = 0; layer < pinned_record_.size(); ++layer) {
    if (pinned_record_[layer] >= 0) {
      MINIACC_RETURN_IF_ERROR(fill_(static_cast<std::int64_t>(layer),
                                    {host_record(static_cast<std::size_t>(pinned_record_[layer])),
                                     options_.plan.layer_bytes}));
      ++records_read_;
    }
  }
  return {};
}

WeightRing::~WeightRing() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (reader_.joinable()) {
    reader_.join();
  }
  if (copies_) {
    try {
      cuda::synchronize(copies_.get());  // a copy must not outlive the memory it reads
    } catch (const std::exception&) {    // sticks to the context: the next checked call reports it
    }
  }
}

std::size_t WeightRing::pinned_bytes() const { return pinned_memory_.size_bytes(); }

bool WeightRing::needs_copy(std::int64_t step) const {
  return !is_resident(layer_of(step)) || step < options_.plan.num_layers();
}

std::byte* WeightRing::device_place(std::int64_t step) {
  const auto layer = static_cast<std::size_t>(layer_of(step));
  if (resident_place_[layer] >= 0) {
    return static_cast<std::byte*>(residents_.data()) +
           static_cast<std::size_t>(resident_place_[layer]) * options_.plan.layer_bytes;
  }
  const std::int64_t pass = step / options_.plan.num_layers();
  const std::int64_t slot =
      (pass * options_.plan.num_streamed() + slot_order_[layer]) % options_.plan.num_slots;
  return static_cast<std::byte*>(slots_memory_.data()) +
         static_cast<std::size_t>(slot) * options_.plan.layer_bytes;
}

std::byte* WeightRing::host_record(std::size_t record) {
  return static_cast<std::byte*>(pinned_memory_.data()) + record * options_.plan.layer_bytes;
}

Result<std::optional<std::size_t>> WeightRing::staged_record(std::int64_t step, bool must) {
  std::unique_lock lock(mutex_);
  const auto find = [&]() -> std::optional<std::size_t> {
    for (std::size_t i = 0; i < staging_.size(); ++i) {
      if (staging_[i].step == step && staging_[i].filled) {
        return i;
      }
    }
    return std::nullopt;
  };
  std::optional<std::size_t> found = find();
  if (!found && must) {
    const auto begin = Clock::now();
    changed_.wait(lock, [&] { return (found = find()).has_value() || reader_error_; });
    counters_.host_wait_ms += milliseconds_since(begin);
  }
  if (!found && reader_error_) {
    return tl::unexpected(*reader_error_);
  }
  return found;
}

Result<bool> WeightRing::issue(std::int64_t step, bool must) {
  if (!needs_copy(step)) {
    return true;
  }
  const auto layer = static_cast<std::size_t>(layer_of(step));
  std::byte* place = device_place(step);
  Slot* slot = nullptr;
  if (!is_resident(layer_of(step))) {
    slot = &slots_[static_cast<std::size_t>(place - static_cast<std::byte*>(slots_memory_.data())) /
                   options_.plan.layer_bytes];
    if (slot->step >= next_step_) {
      return false;  // its layer is still to be used
    }
  }
  const bool pinned = pinned_record_[layer] >= 0;
  std::size_t record = 0;
  if (pinned) {
    record = static_cast<std::size_t>(pinned_record_[layer]);
  } else {
    MINIACC_ASSIGN(const std::optional<std::size_t> staged, staged_record(step, must));
    if (!staged) {
      return false;
    }
    record = *staged;
  }
  const auto num_pinned = static_cast<std::size_t>(
      std::count_if(pinned_record_.begin(), pinned_record_.end(), [](auto at) { return at >= 0; }));
  const ConstTensorView from =
      host_bytes(host_record(pinned ? record : num_pinned + record), options_.plan.layer_bytes);
  if (slot != nullptr && slot->used) {
    cuda::wait(copies_.get(), slot->free);
  }
  cuda::copy_async(TensorView(place, from.shape, from.dtype, device_.id()), from, copies_.get());
  cuda::record(slot != nullptr ? slot->ready
                               : resident_ready_[static_cast<std::size_t>(resident_place_[layer])],
               copies_.get());
  if (slot != nullptr) {
    slot->step = step;
  }
  counters_.bytes_copied += options_.plan.layer_bytes;
  ++counters_.copies;
  if (!pinned) {
    const std::scoped_lock lock(mutex_);
    cuda::record(staging_[record].copied, copies_.get());
    staging_[record].filled = false;
    staging_[record].copying = true;
    changed_.notify_all();
  }
  return true;
}

Result<void*> WeightRing::acquire(std::int64_t index, CUstream_st* compute) {
  const std::int64_t step = next_step_;
  MINIACC_REQUIRE(step < options_.num_steps && index == layer_of(step),
                  "WeightRing: layers are acquired in order, as many steps as were announced");
  if (step > 0 && !is_resident(layer_of(step - 1))) {
    for (Slot& slot : slots_) {
      if (slot.step == step - 1) {
        cuda::record(slot.free, compute);
        slot.used = true;
      }
    }
  }
  next_step_ = step;  // slots of earlier steps may be overwritten, in the order of the events
  for (; next_issue_ <= step; ++next_issue_) {
    MINIACC_ASSIGN(const bool issued, issue(next_issue_, /*must=*/true));
    MINIACC_REQUIRE(issued, "WeightRing: the slot of the step in hand is free");
  }
  while (next_issue_ < options_.num_steps) {
    MINIACC_ASSIGN(const bool issued, issue(next_issue_, /*must=*/false));
    if (!issued) {
      break;
    }
    ++next_issue_;
  }
  std::byte* place = device_place(step);
  if (needs_copy(step)) {
    const auto layer = static_cast<std::size_t>(index);
    const cuda::Event* ready = nullptr;
    if (is_resident(index)) {
      ready = &resident_ready_[static_cast<std::size_t>(resident_place_[layer])];
    } else {
      ready =
          &slots_[static_cast<std::size_t>(place - static_cast<std::byte*>(slots_memory_.data())) /
                  options_.plan.layer_bytes]
               .ready;
    }
    if (options_.measure_stalls) {
      Stall stall{cuda::make_event(device_.id().ordinal, cuda::EventTiming::kOn),
                  cuda::make_event(device_.id().ordinal, cuda::EventTiming::kOn)};
      cuda::record(stall.begin, compute);
      cuda::wait(compute, *ready);
      cuda::record(stall.end, compute);
      stalls_.push_back(std::move(stall));
    } else {
      cuda::wait(compute, *ready);
    }
  }
  next_step_ = step + 1;
  return static_cast<void*>(place);
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

void WeightRing::read_ahead() {
  const auto num_pinned = static_cast<std::size_t>(
      std::count_if(pinned_record_.begin(), pinned_record_.end(), [](auto at) { return at >= 0; }));
  std::size_t next = 0;
  const auto fail_with = [&](Error error) {
    const std::scoped_lock lock(mutex_);
    reader_error_ = std::move(error);
    changed_.notify_all();
  };
  for (std::int64_t step = 0; step < options_.num_steps; ++step) {
    const std::int64_t layer = layer_of(step);
    if (!needs_copy(step) || pinned_record_[static_cast<std::size_t>(layer)] >= 0) {
      continue;
    }
    const std::size_t record = next++ % staging_.size();
    try {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stop_ || !staging_[record].filled; });
        if (stop_) {
          return;
        }
      }
      if (staging_[record].copying) {  // only this thread clears it, and it was set under the lock
        cuda::synchronize(staging_[record].copied);
      }
      const Status filled =
          fill_(layer, {host_record(num_pinned + record), options_.plan.layer_bytes});
      if (!filled) {
        fail_with(filled.error());
        return;
      }
    } catch (const ErrorException& error) {
      fail_with(error.error());
      return;
    } catch (const std::exception& error) {
      fail_with({ErrorCode::kInternal, fmt::format("reading weights ahead: {}", error.what())});
      return;
    }
    const std::scoped_lock lock(mutex_);
    staging_[record].step = step;
    staging_[record].filled = true;
    staging_[record].copying = false;
    ++records_read_;
    changed_.notify_all();
  }
}

}  // namespace miniacc
