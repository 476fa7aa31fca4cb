#include "model/video_vae/posterior.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/float_convert.h"
#include "core/torch_random.h"

namespace miniacc::video_vae {
namespace {

constexpr float kMinLogVariance = -30.0F;
constexpr float kMaxLogVariance = 20.0F;
constexpr std::int64_t kFewestDraws = 16;

}  // namespace

Result<Tensor> latents_of_moments(Device& device, ConstTensorView moments,
                                  const vae::LatentStatistics& statistics, PosteriorUse use) {
  const auto channels = static_cast<std::int64_t>(statistics.mean.size());
  MINIACC_REQUIRE(
      moments.shape.rank() == 4 && moments.is_contiguous() && moments.dim(0) == 2 * channels,
      "latents_of_moments: moments are [2·C, T, h, w]");
  MINIACC_RETURN_IF_ERROR(vae::check_finite_latents("moments of the video VAE", moments, 0));
  Tensor latents = empty_tensor(device, {channels, moments.dim(1), moments.dim(2), moments.dim(3)});
  const std::int64_t count = latents.shape().num_elements();
  float* z = latents.f32().data();
  const float* mean = moments.f32();
  if (use == PosteriorUse::kSampled) {
    if (count < kFewestDraws) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("video VAE: {} latent values of a condition, wanted at least {}",
                              count, kFewestDraws));
    }
    TorchRandom random(kPosteriorSeed);
    random.fill_normal(latents.f32());
    const float* log_variance = mean + count;
    for (std::int64_t i = 0; i < count; ++i) {
      const float clamped = std::clamp(log_variance[i], kMinLogVariance, kMaxLogVariance);
      const float deviation = std::exp(0.5F * clamped);
      z[i] = f16_to_float(float_to_f16(mean[i] + deviation * z[i]));
    }
    MINIACC_RETURN_IF_ERROR(
        vae::check_finite_latents("sampled latents of the video VAE in f16", latents.view(), 0));
  } else {
    std::copy_n(mean, count, z);
  }
  const std::int64_t plane = count / channels;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto channel = static_cast<std::size_t>(i / plane);
    z[i] = (z[i] - statistics.mean[channel]) / statistics.std[channel];
  }
  return latents;
}

}  // namespace miniacc::video_vae
