#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "core/image.h"
#include "kernels/op_context.h"
#include "model/audio_vae/audio_encoder_weights.h"
#include "model/common/vae_weights.h"

namespace miniacc::audio_vae {

/// Part of an encode that is done, from 0 to 1.
using EncodeProgress = std::function<void(double fraction)>;

struct EncodeOptions {
  /// Latents whose samples pass the convolutions at once; neighbouring pieces overlap by all that
  /// the convolutions can see, so that the latents do not depend on it. 256 bound the activations
  /// of the released model to 0.25 GB, whatever the length of the sound.
  std::int64_t piece_latents = 256;
  EncodeProgress progress = {};
};

/// x ← the residual unit's output, in place. x [batch, channels, length] f32, contiguous.
/// Source: spec vae.md §5.2.
void run_residual_unit(OpContext& ctx, TensorView x, const ResidualUnit& unit,
                       std::int64_t dilation);

/// One stage: its units, Snake and the strided convolution. x [batch, channels, length] with length
/// a multiple of the stride; x is overwritten. Result [batch, out_channels, length / stride].
Tensor run_encoder_stage(OpContext& ctx, TensorView x, const EncoderStage& stage,
                         const EncoderStageConfig& sizes);

/// The convolutions: samples [batch, 1, length] f32, length a multiple of samples_per_latent(), to
/// the trunk [batch, latent_dim, length / samples_per_latent()]. `after_stage` may be empty.
Tensor run_trunk(OpContext& ctx, ConstTensorView samples, const EncoderWeights& weights,
                 const AudioEncoderConfig& config, const std::function<void()>& after_stage = {});

/// The encoder of the audio VAE: a waveform to latents. Always f32. All weights stay in memory
/// while the encoder lives (0.35 GB for the released model). Not thread-safe; the device outlives
/// it.
class AudioVaeEncoder {
 public:
  /// Checks dimensions and all shapes, then reads the weights. kInvalidInput or kNotFound names the
  /// tensor or configuration key at fault, or says that the file has no encoder. `config`: of
  /// read_config on the same source.
  static Result<AudioVaeEncoder> open(WeightSource& source, Device& device,
                                      const AudioVaeConfig& config);

  [[nodiscard]] const AudioEncoderConfig& config() const { return config_; }

  /// Encodes a sound of any length; the two channels are independent signals of a mono network. The
  /// end is filled up with zeros to whole latents.
  ///   sound   at config().sample_rate_hz, at least one sample: kInvalidInput otherwise
  ///   result  [2, C, ceil(num_samples / samples_per_latent())] f32: the posterior's mean in the
  ///           diffusion's normalised space, in host memory
  /// kInvalidInput for a sample, or latents, that are not finite. Throws
  /// ErrorException(kCancelled) when ctx.cancel is set (looked at before every residual unit),
  /// kOutOfMemory beyond the device's ceiling. Source: spec vae.md §5.
  Result<Tensor> encode(OpContext& ctx, const StereoSound& sound,
                        const EncodeOptions& options = {});

 private:
  AudioVaeEncoder(AudioEncoderConfig config, EncoderWeights weights,
                  vae::LatentStatistics statistics);

  [[nodiscard]] Status check_sound_input(const StereoSound& sound) const;
  Tensor trunk_rows(OpContext& ctx, std::span<const float> samples, const EncodeOptions& options,
                    std::int64_t channel) const;

  AudioEncoderConfig config_;
  EncoderWeights weights_;
  vae::LatentStatistics statistics_;
};

/// open and encode in one: for a caller with a single sound.
Result<Tensor> encode_audio(OpContext& ctx, WeightSource& source, const AudioVaeConfig& config,
                            const StereoSound& sound, const EncodeProgress& progress = {});

}  // namespace miniacc::audio_vae
