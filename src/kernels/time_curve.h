#pragma once

#include <cstdint>
#include <span>

#include "kernels/op_context.h"

namespace miniacc {

/// e = [cos(t·f_0), ..., cos(t·f_{n-1}), sin(t·f_0), ...], f_k = exp(-ln(10000)·k/n), n = size / 2.
/// t in [0, 1], 1 = clean. Returns [num times, size] f32. Source: spec model.md §3.2.
[[nodiscard]] Tensor time_features(Device& device, std::span<const float> times, std::int64_t size);

/// The time MLP: weights f32 [hidden, size] and [Dt, hidden], biases f32.
struct TimeMlpView {
  ConstTensorView proj_in_weight;
  ConstTensorView proj_in_bias;
  ConstTensorView proj_out_weight;
  ConstTensorView proj_out_bias;
};

/// temb = W2·silu(W1·e(t) + b1) + b2, all f32. Returns [num times, Dt].
[[nodiscard]] Tensor time_mlp(OpContext& ctx, const TimeMlpView& mlp, std::span<const float> times);

}  // namespace miniacc
