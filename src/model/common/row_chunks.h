#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/linear.h"

namespace miniacc {

/// Rows that one matrix product handles at a time. Wide intermediate results (the MLP's inner
/// activation, the copies that reduced-precision products make of their input) then take the same
/// memory for any clip length: 2048 rows of the released transformer's fc1 output are 235 MB.
constexpr std::int64_t kRowChunk = 2048;

/// body(first, count) over consecutive chunks of at most kRowChunk rows.
template <typename Body>
void for_row_chunks(std::int64_t rows, const Body& body) {
  for (std::int64_t first = 0; first < rows; first += kRowChunk) {
    body(first, std::min(kRowChunk, rows - first));
  }
}

/// ops::linear a chunk of rows at a time.
inline void linear_by_rows(OpContext& ctx, TensorView out, ConstTensorView x, const WeightMatrix& w,
                           ConstTensorView bias = {}) {
  for_row_chunks(x.dim(0), [&](std::int64_t first, std::int64_t count) {
    ctx.check_cancelled();
    ops::linear(ctx, out.narrow(0, first, count), x.narrow(0, first, count), w, bias);
  });
}

}  // namespace miniacc
