#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/error.h"

namespace miniacc {

/// Which layers of a stack keep a place in device memory and how many slots the others pass
/// through. Spec acceleration_full.md §1.4.
struct RingPlan {
  std::vector<bool> resident;  ///< [num_layers]
  std::int64_t num_slots = 0;  ///< 0 when every layer is resident
  std::size_t layer_bytes = 0;

  [[nodiscard]] std::int64_t num_layers() const {
    return static_cast<std::int64_t>(resident.size());
  }
  [[nodiscard]] std::int64_t num_resident() const;
  [[nodiscard]] std::int64_t num_streamed() const { return num_layers() - num_resident(); }
  /// Device memory of resident layers and slots.
  [[nodiscard]] std::size_t device_bytes() const;
  /// Bytes that one pass over the stack copies to the device once the residents are there.
  [[nodiscard]] std::size_t bytes_per_pass() const;
};

/// As many residents as `budget_bytes` allows beside `num_slots` slots, spread evenly, so that the
/// copies between them have the time of a resident layer as well. Where all layers fit there are no
/// slots. kOutOfMemory, with the bytes that would do, where not even the slots fit.
///   num_layers, layer_bytes, num_slots  at least 1
[[nodiscard]] Result<RingPlan> plan_ring(std::int64_t num_layers, std::size_t layer_bytes,
                                         std::int64_t num_slots, std::size_t budget_bytes);

}  // namespace miniacc
