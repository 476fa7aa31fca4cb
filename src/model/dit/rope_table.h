#pragma once

#include <span>
#include <vector>

#include "core/tensor.h"
#include "device/device.h"
#include "model/dit/config.h"

namespace miniacc {

/// Cosines and sines of every packed row's rotary angles, [S, 3 · freqs] f32 each: the time axis'
/// frequencies, then height, then width. f32 in every precision: the vendor's runtime rounds them
/// to bf16, which saves it memory traffic and would only lose accuracy here.
struct RopeTable {
  Tensor cos;
  Tensor sin;
};

/// inv_freq[j] = theta^(-2j / (2 · count)), j < count. Source: spec model.md §3.3.
[[nodiscard]] std::vector<float> rope_inv_freq(std::int64_t count, double theta);

/// Tables for positions [S, 3] (time, height, width). A position is cast to f32 once, the angle is
/// an f32 product (spec model.md §3.3, §7 hazard 5).
[[nodiscard]] RopeTable make_rope_table(Device& device, std::span<const double> position_ids,
                                        std::span<const float> inv_freq);

}  // namespace miniacc
