#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"

namespace miniacc {

/// Layers of a stack, loaded when first asked for. The first ones whose sizes fit the budget stay
/// resident; the others pass through one transient slot. Passes walk the stack in order, so keeping
/// a fixed prefix re-reads the least (a least-recently-used cache would miss on every layer).
/// Layer needs size_bytes().
template <typename Layer>
class LayerCache {
 public:
  using Load = std::function<Result<Layer>(std::int64_t index)>;

  LayerCache(std::int64_t count, std::size_t budget_bytes, Load load)
      : resident_(static_cast<std::size_t>(count)),
        budget_bytes_(budget_bytes),
        load_(std::move(load)) {}

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(resident_.size()); }
  [[nodiscard]] std::size_t resident_bytes() const { return resident_bytes_; }
  [[nodiscard]] std::int64_t loads() const { return loads_; }

  /// The layer; valid until the next call.
  [[nodiscard]] Result<const Layer*> get(std::int64_t index) {
    auto& slot = resident_.at(static_cast<std::size_t>(index));
    if (slot) {
      return &*slot;
    }
    transient_.reset();  // before loading, so that two layers never coexist beyond the budget
    auto layer = load_(index);
    if (!layer) {
      return tl::unexpected(std::move(layer).error());
    }
    ++loads_;
    const std::size_t bytes = layer->size_bytes();
    if (bytes <= budget_bytes_ - resident_bytes_) {
      resident_bytes_ += bytes;
      slot.emplace(*std::move(layer));
      return &*slot;
    }
    transient_.emplace(*std::move(layer));
    return &*transient_;
  }

 private:
  std::vector<std::optional<Layer>> resident_;
  std::optional<Layer> transient_;
  std::size_t budget_bytes_;
  std::size_t resident_bytes_ = 0;
  std::int64_t loads_ = 0;
  Load load_;
};

}  // namespace miniacc
