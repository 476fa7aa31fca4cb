#pragma once

#include <string_view>

#include "kernels/attention_int8.h"

/// The wgmma form of attention_int8 (attention_int8.h), for devices of compute capability 9.0.
namespace miniacc::ops::cuda::hopper {

/// Ways of ordering the same arithmetic; every one gives the same bits.
enum class AttentionSchedule {
  kOverlapPingPong,  ///< q·k of the next tile runs beside the softmax, two warpgroups take turns
  kOverlap,          ///< the same without turns
  kPlain,            ///< a warpgroup's products and softmax one after the other, two warpgroups
  kPlainThree,       ///< the same with three warpgroups
};
inline constexpr AttentionSchedule kAttentionSchedules[] = {
    AttentionSchedule::kOverlapPingPong, AttentionSchedule::kOverlap, AttentionSchedule::kPlain,
    AttentionSchedule::kPlainThree};

[[nodiscard]] constexpr std::string_view attention_schedule_name(AttentionSchedule schedule) {
  constexpr std::string_view kNames[] = {"overlap ping-pong", "overlap", "plain", "plain three"};
  return kNames[static_cast<int>(schedule)];
}

/// Whether this build has the kernels and the device runs them.
[[nodiscard]] bool attention_available(DeviceId device);

/// attention_int8 for in.form == kWgmma.
void attention_int8(OpContext& ctx, TensorView out, const QuantizedAttention& in, float scale,
                    AttentionSchedule schedule);

/// For tests of the operand layouts, one step each. q [64, 128] and k [128, 128] i8 as they lie in
/// QuantizedAttention; scores [64, 128] i32 = q·k.
void probe_scores(OpContext& ctx, TensorView scores, ConstTensorView q, ConstTensorView k);

/// numerators [64, 128] f32, rounded to e4m3 by the kernel; v [128, 128] e4m3 as it lies in
/// QuantizedAttention (one tile); sums [64, 128] f32 = numerators · v.
void probe_values(OpContext& ctx, TensorView sums, ConstTensorView numerators, ConstTensorView v);

}  // namespace miniacc::ops::cuda::hopper
