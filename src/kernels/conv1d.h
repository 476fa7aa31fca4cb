#pragma once

#include "kernels/op_context.h"

namespace miniacc::ops {

struct Conv1dOptions {
  std::int64_t stride = 1;
  std::int64_t padding = 0;  ///< zeros on both sides
  std::int64_t dilation = 1;
};

/// Cross-correlation over the last axis.
///   x       [batch, in, length] · weight [out, in, kernel] · bias [out] or empty
///   out     [batch, out, (length + 2·padding - dilation·(kernel-1) - 1) / stride + 1]
/// f32, contiguous; out must not alias x. stride and dilation positive, padding not negative; x
/// with its padding is at least one kernel span long. Takes one zero-padded copy of x as scratch
/// memory.
void conv1d(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
            ConstTensorView bias, const Conv1dOptions& options);

/// out[o, stride·i + k - padding] += weight[in, o, k] · x[in, i]; dilation must be 1.
///   x       [batch, in, length] · weight [in, out, kernel] · bias [out] or empty
///   out     [batch, out, (length-1)·stride - 2·padding + kernel]
/// f32, contiguous; out must not alias x. Source: spec vae.md §4.1.
void conv_transpose1d(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                      ConstTensorView bias, const Conv1dOptions& options);

}  // namespace miniacc::ops
