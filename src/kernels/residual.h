#pragma once

#include "kernels/op_context.h"

namespace miniacc::ops {

/// h += x.   h, x [rows, hidden] f32, contiguous.
void add(OpContext& ctx, TensorView h, ConstTensorView x);

/// h += gate[index[row]] * x, the gate applied raw.
///   h, x   [rows, hidden] f32, contiguous
///   gate   [table_rows, hidden] f32; table rows may be strided
///   index  [rows] i32 in [0, table_rows), or empty: every row uses gate row 0. For another value
///          the CPU throws InternalError; CUDA, whose host cannot see it, makes the row NaN
/// Source: spec model.md §3.4 (AdaLN gate), vae.md §2.3 (per-channel branch scale).
void gated_add(OpContext& ctx, TensorView h, ConstTensorView x, ConstTensorView gate,
               ConstTensorView index);

}  // namespace miniacc::ops
