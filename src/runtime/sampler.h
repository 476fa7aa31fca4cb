#pragma once

#include <functional>

#include "core/tensor.h"
#include "kernels/op_context.h"
#include "runtime/sigma_schedule.h"

namespace miniacc {

/// One Euler step of one stream, in place, float arithmetic in the reference's order:
/// σ̂ = 1 - t with t = 1 - sigma, x0 = x + σ̂·v, r = sigma_next / sigma, x ← r·x + (1 - r)·x0.
///   latents, velocity [rows, channels] f32; velocity points from noise to data (x0 - noise)
/// Source: spec model.md §6.1.
void euler_step(std::span<float> latents, std::span<const float> velocity, float sigma,
                float sigma_next);

/// Latents of both streams as the transformer's rows.
struct LatentRows {
  Tensor video;  ///< [T·P, channels·4]
  Tensor audio;  ///< [2·A, channels]
};

/// Velocity of both streams at timesteps t_video and t_audio (1 - sigma).
using VelocityModel = std::function<Result<LatentRows>(const LatentRows& latents, float t_video,
                                                       float t_audio, std::int64_t step)>;

/// Walks the schedule from noise to clean latents; one call of the model a step. Returns the number
/// of forwards that really ran. A non-finite latent ends the walk at that step with an error that
/// names the step and the stream.
[[nodiscard]] Result<std::int64_t> sample_euler(const SigmaSchedule& schedule, LatentRows& latents,
                                                const VelocityModel& model);

/// [channels, T, h, w] latents to transformer rows [T·(h/2)·(w/2), channels·4] and back: feature
/// channel·4 + py·2 + px, rows frame by frame, then row, then column. Source: spec model.md §3.7.
Tensor patchify(Device& device, ConstTensorView latents);
Tensor unpatchify(Device& device, ConstTensorView rows, const Shape& latents);

}  // namespace miniacc
