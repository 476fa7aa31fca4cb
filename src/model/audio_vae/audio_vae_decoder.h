#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/op_context.h"
#include "model/audio_vae/audio_vae_weights.h"
#include "model/common/layer_cache.h"

namespace miniacc::audio_vae {

/// Part of the decode that is done, from 0 to 1.
using ProgressCallback = std::function<void(double fraction)>;

/// The decoder of the audio VAE: latents to a waveform. Always f32. Weights are read from the
/// source stage by stage and kept up to the cache budget; source and device outlive the decoder.
/// Not thread-safe.
class AudioVaeDecoder {
 public:
  /// Reads dimensions and the weights around the stages, and checks the shapes of all others.
  /// kInvalidInput or kNotFound names the tensor or configuration key at fault.
  static Result<AudioVaeDecoder> open(WeightSource& source, Device& device,
                                      std::size_t cache_budget_bytes);

  [[nodiscard]] const AudioVaeConfig& config() const { return config_; }

  /// Decodes the whole length at once: its ends are padded with zeros, so pieces would differ.
  ///   latents  [channels, Ca, A] f32, contiguous, in the diffusion's normalised space; channels
  ///            (2: left, right) are independent signals of a mono network; A >= 1
  ///   result   [channels, samples_per_latent · A] f32 in [-1, 1], at config().sample_rate_hz
  /// Activations take about ten of the widest layer's tensors: near 80 times the result's bytes for
  /// the released model, 106 MB for the 207 latents of 124 frames.
  /// kInvalidInput for latents that are not finite, kInternal for a waveform that would not be (its
  /// caller may keep the picture and leave the sound out). Throws
  /// ErrorException(kCancelled) when ctx.cancel is set, kOutOfMemory beyond the device's ceiling.
  /// Source: spec vae.md §4.
  Result<Tensor> decode(OpContext& ctx, ConstTensorView latents,
                        const ProgressCallback& progress = {});

 private:
  AudioVaeDecoder(AudioVaeConfig config, Ends ends, vae::LatentStatistics statistics,
                  LayerCache<Stage> stages);

  AudioVaeConfig config_;
  Ends ends_;
  vae::LatentStatistics statistics_;
  LayerCache<Stage> stages_;
};

/// x ← the residual block's output, in place. x [batch, channels, length] f32, contiguous.
/// Source: spec vae.md §4.2.
void run_resblock(OpContext& ctx, TensorView x, const ResBlock& block,
                  const std::vector<std::int64_t>& dilations);

}  // namespace miniacc::audio_vae
