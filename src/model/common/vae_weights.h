#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/weight_source.h"

/// What both VAEs need from a WeightSource: tensors whose shapes are checked, numbers from the
/// configuration, and the latent statistics.
namespace miniacc::vae {

/// The tensor as f32, of exactly this shape; kInvalidInput names tensor, found and wanted shape.
Result<Tensor> load_tensor(WeightSource& source, std::string_view name, const Shape& wanted,
                           Device& device);
/// A linear layer's matrix of exactly this shape [out, in].
Result<OwnedWeightMatrix> load_matrix(WeightSource& source, std::string_view name,
                                      const Shape& wanted, Precision precision, Device& device);
/// Compares shapes without reading values.
Status check_shape(const WeightSource& source, std::string_view name, const Shape& wanted);
/// The shape, checked to have `rank` dimensions, each in [1, 2^20].
Result<Shape> shape_of_rank(const WeightSource& source, std::string_view name, int rank);

/// A number from the configuration, `fallback` where the checkpoint is silent; kInvalidInput when
/// the key holds anything but one finite number.
Result<double> config_number(const WeightSource& source, std::string_view key, double fallback);
/// The same for a whole number in [minimum, maximum].
Result<std::int64_t> config_integer(const WeightSource& source, std::string_view key,
                                    std::int64_t fallback, std::int64_t minimum,
                                    std::int64_t maximum);

/// Per-channel statistics that map diffusion latents z to the VAE's own space: z · std + mean.
struct LatentStatistics {
  std::vector<float> mean;  ///< [channels]
  std::vector<float> std;   ///< [channels], positive
};

/// Taken from the tensors `latents_mean` and `latents_std`, else from the configuration keys of
/// those names, else from the released model's constants where the number of channels is theirs.
/// Anything else is kInvalidInput. Source: spec vae.md §1.
Result<LatentStatistics> latent_statistics(WeightSource& source, std::int64_t channels,
                                           std::span<const float> released_mean,
                                           std::span<const float> released_std, Device& device);

/// kInvalidInput naming channel and position of the first value that is NaN or infinite.
///   latents  [channels, ...] or [batch, channels, ...] f32, contiguous; `channel_axis` tells
Status check_finite_latents(std::string_view what, ConstTensorView latents, int channel_axis);

}  // namespace miniacc::vae
