#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "device/cpu_device.h"
#include "runtime/cuda_weight_ring.h"
#include "runtime/layer_record.h"

namespace miniacc {

/// One stack on its way to a CUDA device. The host's side is opened once; the device's side comes
/// and goes with stages.
class StreamedLayers final : public LayerSource {
 public:
  /// `weights` and `card` outlive the object.
  StreamedLayers(WeightSource& weights, LayerStack stack, Device& card, int num_threads);

  [[nodiscard]] const LayerStack& stack() const { return stack_; }
  [[nodiscard]] std::size_t layer_bytes() const { return layout_.record_bytes; }

  /// Takes pinned memory: records of the layers chosen, or else staging.
  [[nodiscard]] Status open_host(Device& pinned_host, const std::vector<bool>& pinned,
                                 std::int64_t num_staging);
  [[nodiscard]] bool is_host_open() const { return records_ != nullptr; }
  [[nodiscard]] std::size_t pinned_bytes() const { return records_ ? records_->pinned_bytes() : 0; }

  /// Takes the device's part of the plan.
  [[nodiscard]] Status open_device(const RingPlan& plan);
  /// Gives it back, once the device is done with it.
  void close_device();
  [[nodiscard]] const RingPlan* device_plan() const { return ring_ ? &ring_->plan() : nullptr; }
  [[nodiscard]] std::size_t device_bytes() const;

  [[nodiscard]] Result<const LayerView*> acquire(std::int64_t index, OpContext& ctx) override;
  [[nodiscard]] std::int64_t loads() const override { return closed_.records_read; }
  [[nodiscard]] std::size_t resident_bytes() const override;

  /// Of all rings so far; waits for the device.
  [[nodiscard]] StreamReport report(const char* component);

 private:
  [[nodiscard]] Status fill(std::int64_t index, std::span<std::byte> record);
  /// Extras of a layer with their factors on the device.
  [[nodiscard]] Result<const std::vector<MatrixExtras>*> extras_on_device(std::int64_t index,
                                                                          OpContext& ctx);

  WeightSource& weights_;
  LayerStack stack_;
  LayerLayout layout_;
  Device& card_;
  CpuDevice host_;  ///< of vectors and factors on their way
  int num_threads_;
  std::unique_ptr<HostRecords> records_;
  std::mutex extras_mutex_;
  std::vector<std::vector<MatrixExtras>> extras_;  ///< [layers], empty until a layer is read
  std::vector<std::vector<MatrixExtras>> device_extras_;
  LayerView view_;
  StreamCounters closed_;             ///< of rings that are gone
  RingPlan last_plan_;                ///< for reports
  std::unique_ptr<WeightRing> ring_;  ///< last: its reader uses the rest
};

}  // namespace miniacc
