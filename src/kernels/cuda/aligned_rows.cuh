#pragma once

#include "kernels/cuda/launch.cuh"

namespace miniacc::ops::cuda {

/// A contiguous matrix whose rows 16-byte copies can read: the matrix itself where its rows are
/// whole, aligned runs of 16 bytes, otherwise a copy with rows padded by zeros.
struct AlignedRows {
  const unsigned char* data = nullptr;
  std::int64_t row_bytes = 0;  ///< a multiple of 16
  Tensor copy = {};            ///< owns data where it is a copy
};

/// x [rows, k], 1 or 2 bytes a value, contiguous.
[[nodiscard]] AlignedRows aligned_rows(OpContext& ctx, ConstTensorView x);

}  // namespace miniacc::ops::cuda
