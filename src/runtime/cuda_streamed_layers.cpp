#include "runtime/cuda_streamed_layers.h"

#include <utility>

#include "kernels/copy.h"

namespace miniacc {
namespace {

void add(StreamCounters& sum, const StreamCounters& part) {
  sum.bytes_copied += part.bytes_copied;
  sum.copies += part.copies;
  sum.records_read += part.records_read;
  sum.stall_ms += part.stall_ms;
  sum.host_wait_ms += part.host_wait_ms;
}

Result<Tensor> on_card(OpContext& ctx, const Tensor& tensor, Device& card) {
  MINIACC_ASSIGN(Tensor placed, try_empty_tensor(card, tensor.shape(), tensor.dtype()));
  ops::copy(ctx, placed.view(), tensor.view());
  return placed;
}

}  // namespace

StreamedLayers::StreamedLayers(WeightSource& weights, LayerStack stack, Device& card,
                               int num_threads)
    : weights_(weights),
      stack_(std::move(stack)),
      layout_(LayerLayout::of(stack_)),
      card_(card),
      num_threads_(num_threads),
      extras_(static_cast<std::size_t>(stack_.count)),
      device_extras_(static_cast<std::size_t>(stack_.count)) {}

Status StreamedLayers::open_host(Device& pinned_host, const std::vector<bool>& pinned,
                                 std::int64_t num_staging) {
  MINIACC_REQUIRE(!ring_, "StreamedLayers: records change while no ring uses them");
  records_.reset();  // before others are taken
  MINIACC_ASSIGN(records_,
                 HostRecords::create(pinned_host, layout_.record_bytes, pinned, num_staging));
  return {};
}

Status StreamedLayers::open_device(const RingPlan& plan) {
  MINIACC_REQUIRE(records_ && !ring_, "StreamedLayers: host first, device once");
  MINIACC_ASSIGN(ring_, WeightRing::create(card_, *records_, {.plan = plan},
                                           [this](std::int64_t index, std::span<std::byte> record) {
                                             return fill(index, record);
                                           }));
  last_plan_ = plan;
  return {};
}

void StreamedLayers::close_device() {
  if (ring_) {
    add(closed_, ring_->counters());
    ring_.reset();
  }
  for (std::vector<MatrixExtras>& extras : device_extras_) {
    extras.clear();
  }
}

std::size_t StreamedLayers::device_bytes() const {
  return ring_ ? ring_->plan().device_bytes() : 0;
}

std::size_t StreamedLayers::resident_bytes() const {
  return ring_ ? static_cast<std::size_t>(ring_->plan().num_resident()) * layout_.record_bytes : 0;
}

Status StreamedLayers::fill(std::int64_t index, std::span<std::byte> record) {
  std::vector<MatrixExtras> extras;
  MINIACC_RETURN_IF_ERROR(
      fill_record(weights_, stack_, layout_, index, num_threads_, host_, record, extras));
  const std::scoped_lock lock(extras_mutex_);
  std::vector<MatrixExtras>& kept = extras_[static_cast<std::size_t>(index)];
  if (kept.empty()) {  // read again, they are the same: views may point to the first
    kept = std::move(extras);
  }
  return {};
}

Result<const std::vector<MatrixExtras>*> StreamedLayers::extras_on_device(std::int64_t index,
                                                                          OpContext& ctx) {
  std::vector<MatrixExtras>& placed = device_extras_[static_cast<std::size_t>(index)];
  if (!placed.empty()) {
    return &placed;
  }
  const std::scoped_lock lock(extras_mutex_);
  std::vector<MatrixExtras> made;
  for (const MatrixExtras& extra : extras_[static_cast<std::size_t>(index)]) {
    MatrixExtras& copy = made.emplace_back();
    copy.rotation_group = extra.rotation_group;
    for (const LowRankDelta& delta : extra.low_rank) {
      LowRankDelta& factors = copy.low_rank.emplace_back();
      factors.scale = delta.scale;
      factors.first_row = delta.first_row;
      MINIACC_ASSIGN(factors.down, on_card(ctx, delta.down, card_));
      MINIACC_ASSIGN(factors.up, on_card(ctx, delta.up, card_));
    }
  }
  placed = std::move(made);
  return &placed;
}

Result<const LayerView*> StreamedLayers::acquire(std::int64_t index, OpContext& ctx) {
  MINIACC_REQUIRE(ring_ != nullptr, "StreamedLayers: the stack was not begun");
  MINIACC_ASSIGN(void* record, ring_->acquire(index, ctx.stream, ctx.cancel));
  MINIACC_ASSIGN(const std::vector<MatrixExtras>* extras, extras_on_device(index, ctx));
  view_ = record_view(layout_, record, card_.id(), *extras);
  return &view_;
}

StreamReport StreamedLayers::report(const char* component) {
  StreamReport report;
  report.component = component;
  report.layers = stack_.count;
  report.resident = last_plan_.num_resident();
  report.slots = last_plan_.num_slots;
  report.pinned = records_ ? records_->num_pinned() : 0;
  report.layer_bytes = layout_.record_bytes;
  report.device_bytes = last_plan_.device_bytes();
  report.pinned_bytes = pinned_bytes();
  report.counters = closed_;
  if (ring_) {
    add(report.counters, ring_->counters());
  }
  return report;
}

}  // namespace miniacc
