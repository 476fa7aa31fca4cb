#include "model/audio_vae/audio_vae_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/conv1d.h"
#include "kernels/copy.h"
#include "kernels/linear.h"
#include "kernels/residual.h"
#include "kernels/snake.h"
#include "model/audio_vae/pre_block.h"

namespace miniacc::audio_vae {
namespace {

constexpr std::int64_t kChannels = 2;

}  // namespace

void run_residual_unit(OpContext& ctx, TensorView x, const ResidualUnit& unit,
                       std::int64_t dilation) {
  const std::int64_t kernel = unit.dilated.weight.shape()[2];
  Tensor activated = empty_tensor(ctx.device, x.shape);
  Tensor convolved = empty_tensor(ctx.device, x.shape);
  ops::snake(ctx, activated.view(), x, unit.alpha1.view());
  ops::conv1d(ctx, convolved.view(), activated.view(), unit.dilated.weight.view(),
              unit.dilated.bias_view(),
              {.padding = dilation * (kernel - 1) / 2, .dilation = dilation});
  ops::snake(ctx, convolved.view(), convolved.view(), unit.alpha2.view());
  ops::conv1d(ctx, activated.view(), convolved.view(), unit.mix.weight.view(), unit.mix.bias_view(),
              {});
  ops::add(ctx, x, activated.view());
}

Tensor run_encoder_stage(OpContext& ctx, TensorView x, const EncoderStage& stage,
                         const EncoderStageConfig& sizes) {
  MINIACC_REQUIRE(x.dim(2) % sizes.stride == 0, "run_encoder_stage: whole strides");
  std::int64_t dilation = 1;
  for (const ResidualUnit& unit : stage.units) {
    ctx.check_cancelled();
    run_residual_unit(ctx, x, unit, dilation);
    dilation *= 3;
  }
  ops::snake(ctx, x, x, stage.alpha.view());
  // (length + 2·padding - 2·stride) / stride + 1 = length / stride for any stride above 1.
  const std::int64_t length = x.dim(2) / sizes.stride;
  Tensor out = empty_tensor(ctx.device, {x.dim(0), sizes.out_channels, length});
  ops::conv1d(ctx, out.view(), x, stage.strided.weight.view(), stage.strided.bias_view(),
              {.stride = sizes.stride, .padding = sizes.padding()});
  return out;
}

Tensor run_trunk(OpContext& ctx, ConstTensorView samples, const EncoderWeights& weights,
                 const AudioEncoderConfig& config, const std::function<void()>& after_stage) {
  Tensor x = empty_tensor(ctx.device, {samples.dim(0), config.first_channels, samples.dim(2)});
  ops::conv1d(ctx, x.view(), samples, weights.first.weight.view(), weights.first.bias_view(),
              {.padding = config.first_kernel / 2});
  for (std::size_t s = 0; s < config.stages.size(); ++s) {
    x = run_encoder_stage(ctx, x.view(), weights.stages[s], config.stages[s]);
    if (after_stage) {
      after_stage();
    }
  }
  ops::snake(ctx, x.view(), x.view(), weights.last_alpha.view());
  Tensor out = empty_tensor(ctx.device, {samples.dim(0), config.latent_dim, x.shape()[2]});
  ops::conv1d(ctx, out.view(), x.view(), weights.last.weight.view(), weights.last.bias_view(),
              {.padding = config.last_kernel / 2});
  return out;
}

AudioVaeEncoder::AudioVaeEncoder(AudioEncoderConfig config, EncoderWeights weights,
                                 vae::LatentStatistics statistics)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      statistics_(std::move(statistics)) {}

Result<AudioVaeEncoder> AudioVaeEncoder::open(WeightSource& source, Device& device,
                                              const AudioVaeConfig& config) {
  MINIACC_ASSIGN(AudioEncoderConfig encoder, read_encoder_config(source, config));
  MINIACC_RETURN_IF_ERROR(check_encoder_weights(source, encoder));
  MINIACC_ASSIGN(vae::LatentStatistics statistics, load_statistics(source, config, device));
  MINIACC_ASSIGN(EncoderWeights weights, load_encoder_weights(source, encoder, device));
  return AudioVaeEncoder(std::move(encoder), std::move(weights), std::move(statistics));
}

Status AudioVaeEncoder::check_sound_input(const StereoSound& sound) const {
  MINIACC_REQUIRE(static_cast<std::int64_t>(sound.samples.size()) == kChannels * sound.num_samples,
                  "encode: samples are [2, num_samples]");
  if (sound.sample_rate_hz != config_.sample_rate_hz) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("audio VAE: a sound at {} Hz cannot be encoded, wanted {} Hz",
                            sound.sample_rate_hz, config_.sample_rate_hz));
  }
  if (sound.num_samples < 1) {
    return fail(ErrorCode::kInvalidInput, "audio VAE: a sound without samples cannot be encoded");
  }
  for (std::size_t i = 0; i < sound.samples.size(); ++i) {
    if (!std::isfinite(sound.samples[i])) {
      const auto length = static_cast<std::size_t>(sound.num_samples);
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("audio VAE: sample {} of channel {} is {}, wanted a finite value",
                              i % length, i / length, sound.samples[i]));
    }
  }
  return {};
}

/// The trunk of one channel, [latents, latent_dim] in host memory, piece by piece.
Tensor AudioVaeEncoder::trunk_rows(OpContext& ctx, std::span<const float> samples,
                                   const EncodeOptions& options, std::int64_t channel) const {
  const std::int64_t hop = config_.samples_per_latent();
  const auto num_samples = static_cast<std::int64_t>(samples.size());
  const std::int64_t num_latents = (num_samples + hop - 1) / hop;
  const std::int64_t context = config_.context_latents();
  const std::int64_t pieces = (num_latents + options.piece_latents - 1) / options.piece_latents;
  std::int64_t steps_done = channel * pieces * static_cast<std::int64_t>(config_.stages.size());
  const auto after_stage = [&] {
    ++steps_done;
    if (options.progress) {
      const auto steps = kChannels * pieces * static_cast<std::int64_t>(config_.stages.size());
      options.progress(static_cast<double>(steps_done) / static_cast<double>(steps));
    }
  };
  Tensor rows = empty_tensor(ctx.host_device(), {num_latents, config_.latent_dim});
  for (std::int64_t first = 0; first < num_latents; first += options.piece_latents) {
    ctx.check_cancelled();
    const std::int64_t last = std::min(num_latents, first + options.piece_latents);
    const std::int64_t begin = std::max<std::int64_t>(0, first - context);
    const std::int64_t end = std::min(num_latents, last + context);
    Tensor piece = empty_tensor(ctx.host_device(), {1, 1, (end - begin) * hop});
    const std::int64_t present = std::min(num_samples, end * hop) - begin * hop;
    float* target = piece.f32().data();
    std::copy_n(samples.data() + begin * hop, present, target);
    std::fill(target + present, target + (end - begin) * hop, 0.0F);
    const Placed placed = on_device(ctx, piece.view());
    const Tensor trunk = to_host(ctx, run_trunk(ctx, placed.view, weights_, config_, after_stage));
    const std::int64_t length = end - begin;
    for (std::int64_t latent = first; latent < last; ++latent) {
      float* row = rows.f32().data() + latent * config_.latent_dim;
      for (std::int64_t d = 0; d < config_.latent_dim; ++d) {
        row[d] = trunk.f32()[static_cast<std::size_t>(d * length + latent - begin)];
      }
    }
  }
  return rows;
}

Result<Tensor> AudioVaeEncoder::encode(OpContext& ctx, const StereoSound& sound,
                                       const EncodeOptions& options) {
  MINIACC_REQUIRE(options.piece_latents > 0, "encode: piece_latents is positive");
  MINIACC_RETURN_IF_ERROR(check_sound_input(sound));
  const std::int64_t hop = config_.samples_per_latent();
  const std::int64_t num_latents = (sound.num_samples + hop - 1) / hop;
  const std::int64_t c = config_.latent_channels;
  Tensor latents = empty_tensor(ctx.host_device(), {kChannels, c, num_latents});
  for (std::int64_t channel = 0; channel < kChannels; ++channel) {
    const auto samples = std::span(sound.samples)
                             .subspan(static_cast<std::size_t>(channel * sound.num_samples),
                                      static_cast<std::size_t>(sound.num_samples));
    const Tensor rows = to_device(ctx, trunk_rows(ctx, samples, options, channel));
    const Tensor hidden = run_pre_block(ctx, rows.view(), weights_.pre_block, config_);
    Tensor on_device_mean = empty_tensor(ctx.device, {num_latents, c});
    const LinearWeights& head = weights_.pre_block.mean_proj;
    ops::linear(ctx, on_device_mean.view(), hidden.view(), head.weight.view(), head.bias.view());
    const Tensor mean = to_host(ctx, std::move(on_device_mean));
    for (std::int64_t i = 0; i < c; ++i) {
      const auto at = static_cast<std::size_t>(i);
      float* target = latents.f32().data() + (channel * c + i) * num_latents;
      for (std::int64_t n = 0; n < num_latents; ++n) {
        target[n] = (mean.f32()[static_cast<std::size_t>(n * c + i)] - statistics_.mean[at]) /
                    statistics_.std[at];
      }
    }
  }
  MINIACC_RETURN_IF_ERROR(vae::check_finite_latents("encoded audio latents", latents.view(), 1));
  return latents;
}

Result<Tensor> encode_audio(OpContext& ctx, WeightSource& source, const AudioVaeConfig& config,
                            const StereoSound& sound, const EncodeProgress& progress) {
  MINIACC_ASSIGN(AudioVaeEncoder encoder, AudioVaeEncoder::open(source, ctx.device, config));
  return encoder.encode(ctx, sound, {.progress = progress});
}

}  // namespace miniacc::audio_vae
