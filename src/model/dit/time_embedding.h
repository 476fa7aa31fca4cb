#pragma once

#include <span>

#include "kernels/op_context.h"
#include "kernels/time_curve.h"
#include "model/dit/config.h"
#include "model/dit/weights.h"

namespace miniacc {

/// Rows of a [grid, rank] table interpolated at t: p = clamp(t, 0, 1)·(grid - 1), between rows
/// floor(p) and floor(p) + 1. Returns [num times, rank] f32. Source: spec model.md §3.2.
[[nodiscard]] Tensor curve_lookup(Device& device, std::span<const float> times,
                                  ConstTensorView table);

/// temb = W2·silu(W1·e + b1) + b2, all f32. [num times, Dt]. Needs the time MLP.
[[nodiscard]] Tensor time_embedding(OpContext& ctx, const DitConfig& config,
                                    const DitIslands& islands, std::span<const float> times);

/// The input of every AdaLN projection, [num times, Dt] f32: silu(temb), or the curve table's rows,
/// which hold the SiLU already.
[[nodiscard]] Tensor adaln_input(OpContext& ctx, const DitConfig& config, const DitIslands& islands,
                                 std::span<const float> times);

}  // namespace miniacc
