#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "device/cuda_handles.h"
#include "device/device.h"
#include "runtime/ring_plan.h"

namespace miniacc {

/// What streaming cost, over the life of a ring.
struct StreamCounters {
  std::size_t bytes_copied = 0;  ///< host to device, residents included
  std::int64_t copies = 0;
  std::int64_t records_read = 0;  ///< calls of Fill
  double stall_ms = 0.0;          ///< time the compute stream waited for copies
  double host_wait_ms = 0.0;      ///< time the issuing thread waited for the reader
};

/// Layers of one stack on their way from host memory to a CUDA device, ahead of the stream that
/// computes with them. A layer is one record of bytes: one copy, in the order of use.
///
/// The walk is layer 0, 1, …, n-1, 0, 1, …: the ring goes on across passes. Copies run on a stream
/// of their own; which layers are resident, how many slots there are and where records come from
/// change the time and no byte of what the kernels read.
///
/// Records that fit `pinned_layers` are filled once and stay in pinned memory; the others pass
/// through pinned staging records that a reader thread fills in the order of use.
class WeightRing {
 public:
  /// Writes layer `index` as plan.layer_bytes bytes. Called from the reader thread for staged
  /// layers and from the creating thread for pinned ones, never from both at once for one ring.
  using Fill = std::function<Status(std::int64_t index, std::span<std::byte> record)>;

  struct Options {
    RingPlan plan;
    /// Streamed layers whose records stay in pinned memory; all others are staged. Resident layers
    /// are staged too unless all are pinned: they are copied once.
    std::int64_t pinned_layers = 0;
    std::int64_t num_staging = 3;
    /// Steps that will be walked; the ring reads nothing beyond them.
    std::int64_t num_steps = 0;
    /// Measures stalls with timed events.
    bool measure_stalls = false;
  };

  /// Takes device memory (plan.device_bytes()) and pinned memory. `device` is a CUDA device,
  /// `pinned_host` a CudaPinnedHost; both outlive the ring. Errors: kOutOfMemory, those of `fill`.
  [[nodiscard]] static Result<std::unique_ptr<WeightRing>> create(Device& device,
                                                                  Device& pinned_host,
                                                                  Options options, Fill fill);
  /// Waits for the copies under way and ends the reader.
  ~WeightRing();
  WeightRing(const WeightRing&) = delete;
  WeightRing& operator=(const WeightRing&) = delete;

  /// Device address of layer `index`, the next one of the walk (else InternalError). Work given to
  /// `compute` after this call sees the layer; it stays until the next call, whose work on
  /// `compute` frees it. The host waits only for the reader. Errors are those of `fill`.
  [[nodiscard]] Result<void*> acquire(std::int64_t index, CUstream_st* compute);

  /// Waits for the measured work and returns what streaming cost so far.
  [[nodiscard]] StreamCounters counters();
  [[nodiscard]] const RingPlan& plan() const { return options_.plan; }
  [[nodiscard]] std::size_t pinned_bytes() const;

 private:
  struct Slot {
    std::int64_t step = -1;  ///< whose layer it holds or is about to
    cuda::Event ready;       ///< recorded on the copy stream behind the copy
    cuda::Event free;        ///< recorded on the compute stream behind the last use
    bool used = false;       ///< `free` was recorded
  };
  struct Staged {
    std::int64_t step = -1;
    bool filled = false;
    bool copying = false;  ///< `copied` was recorded and not yet waited for
    cuda::Event copied;
  };
  struct Stall {
    cuda::Event begin;
    cuda::Event end;
  };

  WeightRing(Device& device, Options options, Fill fill);
  [[nodiscard]] Status take_memory(Device& pinned_host);
  [[nodiscard]] Status fill_pinned();
  [[nodiscard]] std::int64_t layer_of(std::int64_t step) const {
    return step % options_.plan.num_layers();
  }
  [[nodiscard]] bool is_resident(std::int64_t layer) const {
    return options_.plan.resident[static_cast<std::size_t>(layer)];
  }
  /// True when the step's layer must be copied: streamed, or resident and walked for the first
  /// time.
  [[nodiscard]] bool needs_copy(std::int64_t step) const;
  [[nodiscard]] std::byte* device_place(std::int64_t step);
  [[nodiscard]] std::byte* host_record(std::size_t record);
  /// Enqueues the copy of `step` unless its slot or record is not there yet; `must` waits for the
  /// record.
  [[nodiscard]] Result<bool> issue(std::int64_t step, bool must);
  [[nodiscard]] Result<std::optional<std::size_t>> staged_record(std::int64_t step, bool must);
  void read_ahead();

  Device& device_;
  Options options_;
  Fill fill_;
  Buffer residents_;
  Buffer slots_memory_;
  Buffer pinned_memory_;
  std::vector<std::int64_t> resident_place_;  ///< [layers] index of its place, or -1
  std::vector<std::int64_t> slot_order_;      ///< [layers] rank among the streamed layers, or -1
  std::vector<std::int64_t> pinned_record_;   ///< [layers] index of its record, or -1
  std::vector<Slot> slots_;
  std::vector<cuda::Event> resident_ready_;  ///< [residents]
  cuda::Stream copies_;
  std::vector<Stall> stalls_;
  std::int64_t next_step_ = 0;   ///< of acquire
  std::int64_t next_issue_ = 0;  ///< the first step whose copy is not enqueued
  StreamCounters counters_;

  // Shared with the reader.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Staged> staging_;
  std::optional<Error> reader_error_;
  std::int64_t records_read_ = 0;
  bool stop_ = false;
  std::thread reader_;
};

}  // namespace miniacc
