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

#include "core/cancel_token.h"
#include "device/cuda_handles.h"
#include "device/device.h"
#include "runtime/ring_plan.h"
#include "runtime/stream_report.h"

namespace miniacc {

/// The host's side of a stack that goes to a CUDA device: records of layers in pinned memory. Kept
/// over rings, so that giving device memory back does not cost reading the file again.
class HostRecords {
 public:
  /// The layers for which `pinned` says so get a record of their own, as far as the system gives
  /// pinned memory; all others pass through `num_staging` staging records, which are taken when a
  /// layer needs them. kOutOfMemory where not even those can be had.
  ///   pinned_host  a CudaPinnedHost that outlives the object
  [[nodiscard]] static Result<std::unique_ptr<HostRecords>> create(Device& pinned_host,
                                                                   std::size_t layer_bytes,
                                                                   const std::vector<bool>& pinned,
                                                                   std::int64_t num_staging);

  [[nodiscard]] std::size_t layer_bytes() const { return layer_bytes_; }
  [[nodiscard]] std::int64_t num_layers() const {
    return static_cast<std::int64_t>(layers_.size());
  }
  [[nodiscard]] std::int64_t num_pinned() const;
  [[nodiscard]] std::size_t pinned_bytes() const;

 private:
  friend class WeightRing;
  struct Record {
    Buffer memory;        ///< empty: the layer is staged
    bool filled = false;  ///< guarded by the mutex of the ring at work
  };
  explicit HostRecords(std::size_t layer_bytes) : layer_bytes_(layer_bytes) {}

  std::size_t layer_bytes_;
  std::vector<Record> layers_;
  std::vector<Buffer> staging_;
};

/// Layers of one stack on their way from host memory to a CUDA device, ahead of the stream that
/// computes with them. A layer is one record of bytes: one copy, in the order of use.
///
/// The walk is layer 0, 1, …, n-1, 0, 1, …: the ring goes on across passes, and a pass that ended
/// early is begun anew with layer 0. Copies run on a stream of their own; which layers are
/// resident, how many slots there are and where records come from change the time and no byte of
/// what the kernels read. A reader thread fills records in the order of use.
class WeightRing {
 public:
  /// Writes layer `index` as plan.layer_bytes bytes. Called from the reader thread.
  using Fill = std::function<Status(std::int64_t index, std::span<std::byte> record)>;

  struct Options {
    RingPlan plan;
    /// Measures stalls with timed events.
    bool measure_stalls = true;
  };

  /// Takes device memory (plan.device_bytes()). `device` is a CUDA device; it and `records`, of the
  /// same stack, outlive the ring, and no other ring uses the records meanwhile. kOutOfMemory.
  [[nodiscard]] static Result<std::unique_ptr<WeightRing>> create(Device& device,
                                                                  HostRecords& records,
                                                                  Options options, Fill fill);
  /// Waits for the copies under way and ends the reader.
  ~WeightRing();
  WeightRing(const WeightRing&) = delete;
  WeightRing& operator=(const WeightRing&) = delete;

  /// Device address of layer `index`: the next one of the walk, or 0 to begin a pass (else
  /// InternalError). Work given to `compute` after this call sees the layer; it stays until the
  /// next call, whose work on `compute` frees it. The host waits only for the reader; `cancel` (may
  /// be null) ends that with ErrorException(kCancelled). Errors are those of `fill`.
  [[nodiscard]] Result<void*> acquire(std::int64_t index, CUstream_st* compute,
                                      const CancelToken* cancel = nullptr);

  /// Waits for the measured work and returns what streaming cost so far.
  [[nodiscard]] StreamCounters counters();
  [[nodiscard]] const RingPlan& plan() const { return options_.plan; }

 private:
  struct Slot {
    std::int64_t step = -1;  ///< whose layer it holds or is about to
    cuda::Event ready;       ///< recorded on the copy stream behind the copy
    cuda::Event free;        ///< recorded on the compute stream behind the last use
    bool used = false;       ///< `free` was recorded
  };
  struct Resident {
    cuda::Event ready;
    bool copied = false;  ///< its copy was enqueued
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

  WeightRing(Device& device, HostRecords& records, Options options, Fill fill);
  [[nodiscard]] Status take_memory();
  void start_reader();
  void stop_reader();
  /// Ends the walk where it is, so that the next step is layer 0's.
  void rewind(CUstream_st* compute);
  [[nodiscard]] std::int64_t layer_of(std::int64_t step) const {
    return step % options_.plan.num_layers();
  }
  [[nodiscard]] bool is_resident(std::int64_t layer) const {
    return options_.plan.resident[static_cast<std::size_t>(layer)];
  }
  [[nodiscard]] bool has_record(std::int64_t layer) const {
    return records_.layers_[static_cast<std::size_t>(layer)].memory.data() != nullptr;
  }
  [[nodiscard]] Slot& slot_of(std::int64_t step);
  [[nodiscard]] std::byte* device_place(std::int64_t step);
  /// Enqueues the copy of `step` unless its slot or record is not there yet; `must` waits for the
  /// record.
  [[nodiscard]] Result<bool> issue(std::int64_t step, bool must, const CancelToken* cancel);
  /// The bytes of the step's layer once they are there; `staged` gets the staging record, or -1.
  [[nodiscard]] Result<const std::byte*> record_of(std::int64_t step, bool must,
                                                   const CancelToken* cancel,
                                                   std::ptrdiff_t& staged);
  void read_ahead(std::vector<bool> residents_to_read);
  [[nodiscard]] Status read_pinned(std::int64_t layer);
  [[nodiscard]] Result<bool> read_staged(std::int64_t step, std::size_t index);

  Device& device_;
  HostRecords& records_;
  Options options_;
  Fill fill_;
  Buffer residents_memory_;
  Buffer slots_memory_;
  std::vector<std::int64_t> resident_place_;  ///< [layers] index of its place, or -1
  std::vector<std::int64_t> slot_order_;      ///< [layers] rank among the streamed layers, or -1
  std::vector<Slot> slots_;
  std::vector<Resident> residents_;
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
