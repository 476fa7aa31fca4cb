#include "runtime/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace miniacc {
namespace {

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); });
}

Status check_finite(std::string_view stream, const Tensor& latents, std::int64_t step,
                    std::size_t num_steps) {
  if (all_finite(latents.f32())) {
    return {};
  }
  return fail(ErrorCode::kInternal,
              fmt::format("the {} latents are not finite after step {} of {}; nothing was written",
                          stream, step + 1, num_steps));
}

/// Calls body(latent index, row index) for every element of the two layouts.
template <typename Body>
void for_each_patch_element(const Shape& latents, const Body& body) {
  const std::int64_t channels = latents[0];
  const std::int64_t height = latents[2];
  const std::int64_t width = latents[3];
  MINIACC_REQUIRE(height % 2 == 0 && width % 2 == 0, "patchify: latent sizes must be even");
  std::int64_t source = 0;
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t t = 0; t < latents[1]; ++t) {
      for (std::int64_t y = 0; y < height; ++y) {
        for (std::int64_t x = 0; x < width; ++x, ++source) {
          const std::int64_t row = (t * (height / 2) + y / 2) * (width / 2) + x / 2;
          body(source, row * channels * 4 + c * 4 + (y % 2) * 2 + x % 2);
        }
      }
    }
  }
}

}  // namespace

void euler_step(std::span<float> latents, std::span<const float> velocity, float sigma,
                float sigma_next) {
  MINIACC_REQUIRE(latents.size() == velocity.size(), "euler_step: sizes differ");
  const float timestep = 1.0F - sigma;
  const float sigma_of_timestep = 1.0F - timestep;  // not sigma again: the reference rounds twice
  const float ratio = sigma_next / sigma;
  const float rest = 1.0F - ratio;
  for (std::size_t i = 0; i < latents.size(); ++i) {
    const float clean = latents[i] + sigma_of_timestep * velocity[i];
    latents[i] = ratio * latents[i] + rest * clean;
  }
}

Result<std::int64_t> sample_euler(const SigmaSchedule& schedule, LatentRows& latents,
                                  const VelocityModel& model) {
  const std::size_t num_steps = schedule.num_forwards();
  std::int64_t forwards = 0;
  for (std::size_t i = 0; i < num_steps; ++i) {
    const auto step = static_cast<std::int64_t>(i);
    MINIACC_ASSIGN(const LatentRows velocity,
                   model(latents, 1.0F - schedule.video[i], 1.0F - schedule.audio[i], step));
    ++forwards;
    euler_step(latents.video.f32(), velocity.video.f32(), schedule.video[i], schedule.video[i + 1]);
    euler_step(latents.audio.f32(), velocity.audio.f32(), schedule.audio[i], schedule.audio[i + 1]);
    MINIACC_RETURN_IF_ERROR(check_finite("video", latents.video, step, num_steps));
    MINIACC_RETURN_IF_ERROR(check_finite("audio", latents.audio, step, num_steps));
  }
  return forwards;
}

Tensor patchify(Device& device, ConstTensorView latents) {
  const Shape& shape = latents.shape;
  MINIACC_REQUIRE(shape.rank() == 4 && latents.is_contiguous(),
                  "patchify: latents are contiguous [channels, T, h, w]");
  Tensor rows = empty_tensor(device, {shape[1] * (shape[2] / 2) * (shape[3] / 2), shape[0] * 4});
  const float* source = latents.f32();
  float* target = rows.view().f32();
  for_each_patch_element(
      shape, [&](std::int64_t latent, std::int64_t row) { target[row] = source[latent]; });
  return rows;
}

Tensor unpatchify(Device& device, ConstTensorView rows, const Shape& latents) {
  MINIACC_REQUIRE(
      latents.rank() == 4 && rows.is_contiguous() && rows.num_elements() == latents.num_elements(),
      "unpatchify: as many values as the latents");
  Tensor result = empty_tensor(device, latents);
  const float* source = rows.f32();
  float* target = result.view().f32();
  for_each_patch_element(
      latents, [&](std::int64_t latent, std::int64_t row) { target[latent] = source[row]; });
  return result;
}

}  // namespace miniacc
