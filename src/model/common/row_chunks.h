#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/linear.h"

namespace miniacc {

/// Rows that one matrix product handles at a time. Wide intermediate results (the MLP's inner
/// activation, the copies that reduced-precision products make of their input) then take the same
/// memory for any clip length: 2048 rows of the released transformer's fc1 output are 235 MB.
constexpr std::int64_t kRowChunk = 2048;
/// The same on CUDA, where a product must fill the card and launches should be few: 16384 rows of
/// that output are 1.88 GB.
constexpr std::int64_t kCudaRowChunk = 16384;

constexpr std::int64_t row_chunk(DeviceKind device) {
  return device == DeviceKind::kCuda ? kCudaRowChunk : kRowChunk;
}

/// body(first, count) over consecutive chunks of at most `chunk` rows.
template <typename Body>
void for_row_chunks(std::int64_t rows, std::int64_t chunk, const Body& body) {
  for (std::int64_t first = 0; first < rows; first += chunk) {
    body(first, std::min(chunk, rows - first));
  }
}

/// The same for kRowChunk rows.
template <typename Body>
void for_row_chunks(std::int64_t rows, const Body& body) {
  for_row_chunks(rows, kRowChunk, body);
}

/// ops::linear a chunk of rows at a time.
inline void linear_by_rows(OpContext& ctx, TensorView out, ConstTensorView x, const WeightMatrix& w,
                           ConstTensorView bias = {}) {
  for_row_chunks(x.dim(0), row_chunk(out.device.kind), [&](std::int64_t first, std::int64_t count) {
    ctx.check_cancelled();
    ops::linear(ctx, out.narrow(0, first, count), x.narrow(0, first, count), w, bias);
  });
}

}  // namespace miniacc
