#pragma once

#include <cstdint>

#include "device/device.h"
#include "model/common/vae_weights.h"

namespace miniacc::video_vae {

/// What is taken from the distribution that an encoder describes.
enum class PosteriorUse {
  kSampled,  ///< mean + std · noise, rounded to f16: the reference's latents
  kMean,     ///< the mean alone, as other engines encode
};

/// Seed of the posterior's noise, the same for every condition and request. Source: spec vae.md
/// §3.7.
inline constexpr std::uint64_t kPosteriorSeed = 42;

/// Latents in the diffusion's normalised space.
///   moments  [2·C, T, h, w] f32, contiguous: means, then log variances (clamped to [-30, 20])
///   result   [C, T, h, w] f32: (z - statistics.mean) / statistics.std of
///            z = f16(mean + exp(logvar / 2) · noise), noise one torch.randn of that shape from a
///            fresh CPU generator; or of z = mean
/// kInvalidInput for moments, or latents beyond f16, that are not finite, naming channel and place,
/// and for fewer than 16 latent values, which torch's generator draws in another way.
Result<Tensor> latents_of_moments(Device& device, ConstTensorView moments,
                                  const vae::LatentStatistics& statistics, PosteriorUse use);

}  // namespace miniacc::video_vae
