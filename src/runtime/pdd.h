#pragma once

#include <cstdint>
#include <vector>

#include "adapters/adapted_weights.h"
#include "core/error.h"
#include "model/dit/weights.h"
#include "runtime/sigma_schedule.h"

namespace miniacc {

/// Sampling with the head banks of a PDD adapter: each evaluation covers a run of fine intervals
/// with one fused head, which makes it one Euler step. Source: spec model.md §6.5.

/// Fine intervals that one step of a schedule covers.
struct HeadRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
/// The intervals of each step. kInvalidArgument where the schedule is not made of points of the
/// `num_steps`-interval grid under shifts 12 and 3, from 1 to 0, the same point in both streams:
/// heads exist for nothing else.
[[nodiscard]] Result<std::vector<HeadRange>> head_ranges(const SigmaSchedule& schedule,
                                                         std::int64_t num_steps);

/// The adapter that brings head banks; null when none does. `adapted` may be null.
[[nodiscard]] const Lora* find_head_banks(const AdaptedWeights* adapted);

/// One pair of heads a step; empty when no adapter brings any.
[[nodiscard]] Result<std::vector<DitHeads>> fuse_heads(const AdaptedWeights* adapted,
                                                       const SigmaSchedule& schedule,
                                                       Device& device);

}  // namespace miniacc
