#pragma once

#include <cstdint>
#include <span>

#include "kernels/op_context.h"

namespace miniacc {

/// What one adapter adds to a run of rows of one matrix. Pointers are at the run's first row.
struct DeltaRows {
  std::int64_t begin = 0;  ///< rows [begin, end) of the slab
  std::int64_t end = 0;
  const float* up = nullptr;    ///< [end - begin, rank]; null for a dense change
  const float* down = nullptr;  ///< [rank, columns]
  std::int64_t rank = 0;
  const float* dense = nullptr;  ///< [end - begin, columns]; null for a low-rank change
  float scale = 0.0F;
};

/// rows += Σ over deltas of scale · (up · down), in place on [count, columns] f32. Everything in
/// f32, in this order for each element: the product's terms by ascending rank index (terms with a
/// zero in `up` change nothing and cost nothing, so a block-diagonal qkv is as cheap as its parts),
/// times scale, summed over the deltas in their order, added to the weight. No multiply-add is
/// fused, so that the result is the same on every machine and for every number of threads.
/// Source: spec adapters.md §4, §7.
void add_low_rank_rows(const OpContext& ctx, float* rows, std::int64_t count, std::int64_t columns,
                       std::span<const DeltaRows> deltas);

}  // namespace miniacc
