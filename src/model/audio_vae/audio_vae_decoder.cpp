#include "model/audio_vae/audio_vae_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/conv1d.h"
#include "kernels/copy.h"
#include "kernels/residual.h"
#include "kernels/snake.h"

namespace miniacc::audio_vae {
namespace {

Tensor denormalised(OpContext& ctx, ConstTensorView latents,
                    const vae::LatentStatistics& statistics) {
  Tensor result = empty_tensor(ctx.host_device(), latents.shape);
  const std::int64_t channels = latents.dim(1);
  const std::int64_t length = latents.dim(2);
  for (std::int64_t row = 0; row < latents.dim(0) * channels; ++row) {
    const auto channel = static_cast<std::size_t>(row % channels);
    const float* source = latents.f32() + row * length;
    float* target = result.f32().data() + row * length;
    for (std::int64_t i = 0; i < length; ++i) {
      target[i] = source[i] * statistics.std[channel] + statistics.mean[channel];
    }
  }
  return to_device(ctx, std::move(result));
}

/// A convolution that keeps the length.
Tensor convolve(OpContext& ctx, ConstTensorView x, const Convolution& convolution) {
  const std::int64_t kernel = convolution.weight.shape()[2];
  Tensor out = empty_tensor(ctx.device, {x.dim(0), convolution.weight.shape()[0], x.dim(2)});
  ops::conv1d(ctx, out.view(), x, convolution.weight.view(), convolution.bias_view(),
              {.padding = (kernel - 1) / 2});
  return out;
}

void activate(OpContext& ctx, TensorView out, ConstTensorView x, const Activation& activation) {
  ops::antialiased_snake_beta(ctx, out, x, activation.alpha.view(), activation.beta.view(),
                              activation.up_filter.view(), activation.down_filter.view());
}

Tensor copy_of(OpContext& ctx, const Tensor& x) {
  Tensor copy = empty_tensor(ctx.device, x.shape());
  ops::copy(ctx, copy.view(), x.view());
  return copy;
}

/// Upsamples x and averages the residual blocks, which all take the same input.
Tensor run_stage(OpContext& ctx, ConstTensorView x, const Stage& stage, const StageConfig& sizes,
                 const std::vector<std::vector<std::int64_t>>& dilations) {
  Tensor up = empty_tensor(ctx.device, {x.dim(0), sizes.out_channels, x.dim(2) * sizes.rate});
  ops::conv_transpose1d(ctx, up.view(), x, stage.up.weight.view(), stage.up.bias_view(),
                        {.stride = sizes.rate, .padding = sizes.padding()});
  Tensor sum;
  for (std::size_t r = 0; r < stage.resblocks.size(); ++r) {
    Tensor branch = copy_of(ctx, up);
    run_resblock(ctx, branch.view(), stage.resblocks[r], dilations[r]);
    if (sum.empty()) {
      sum = std::move(branch);
    } else {
      ops::add(ctx, sum.view(), branch.view());
    }
  }
  ops::divide(ctx, sum.view(), static_cast<float>(stage.resblocks.size()));
  return sum;
}

}  // namespace

void run_resblock(OpContext& ctx, TensorView x, const ResBlock& block,
                  const std::vector<std::int64_t>& dilations) {
  MINIACC_REQUIRE(block.convs1.size() == dilations.size(), "run_resblock: a dilation a step");
  Tensor activated = empty_tensor(ctx.device, x.shape);
  Tensor convolved = empty_tensor(ctx.device, x.shape);
  for (std::size_t n = 0; n < dilations.size(); ++n) {
    ctx.check_cancelled();
    const std::int64_t kernel = block.convs1[n].weight.shape()[2];
    activate(ctx, activated.view(), x, block.activations[2 * n]);
    ops::conv1d(ctx, convolved.view(), activated.view(), block.convs1[n].weight.view(),
                block.convs1[n].bias_view(),
                {.padding = dilations[n] * (kernel - 1) / 2, .dilation = dilations[n]});
    activate(ctx, activated.view(), convolved.view(), block.activations[2 * n + 1]);
    ops::conv1d(ctx, convolved.view(), activated.view(), block.convs2[n].weight.view(),
                block.convs2[n].bias_view(), {.padding = (kernel - 1) / 2});
    ops::add(ctx, x, convolved.view());
  }
}

AudioVaeDecoder::AudioVaeDecoder(AudioVaeConfig config, Ends ends, vae::LatentStatistics statistics,
                                 LayerCache<Stage> stages)
    : config_(std::move(config)),
      ends_(std::move(ends)),
      statistics_(std::move(statistics)),
      stages_(std::move(stages)) {}

Result<AudioVaeDecoder> AudioVaeDecoder::open(WeightSource& source, Device& device,
                                              std::size_t cache_budget_bytes) {
  MINIACC_ASSIGN(AudioVaeConfig config, read_config(source));
  MINIACC_RETURN_IF_ERROR(check_weights(source, config));
  MINIACC_ASSIGN(vae::LatentStatistics statistics, load_statistics(source, config, device));
  MINIACC_ASSIGN(Ends ends, load_ends(source, config, device));
  LayerCache<Stage> stages(static_cast<std::int64_t>(config.stages.size()), cache_budget_bytes,
                           [&source, &device, config](std::int64_t index) {
                             return load_stage(source, config, index, device);
                           });
  return AudioVaeDecoder(std::move(config), std::move(ends), std::move(statistics),
                         std::move(stages));
}

Result<Tensor> AudioVaeDecoder::decode(OpContext& ctx, ConstTensorView latents,
                                       const ProgressCallback& progress) {
  MINIACC_REQUIRE(latents.shape.rank() == 3 && latents.dim(1) == config_.latent_channels &&
                      latents.is_contiguous() && latents.num_elements() > 0,
                  "audio VAE: latents are [channels, Ca, A], contiguous and not empty");
  MINIACC_REQUIRE(latents.device.kind == DeviceKind::kCpu, "audio VAE: latents in host memory");
  MINIACC_RETURN_IF_ERROR(vae::check_finite_latents("audio latents", latents, 1));

  Tensor x = denormalised(ctx, latents, statistics_);  // [channels, Ca, A]
  x = convolve(ctx, x.view(), ends_.dec_in_proj);      // [channels, latent_dim, A]
  x = convolve(ctx, x.view(), ends_.conv_pre);         // [channels, decoder_dim, A]
  for (std::int64_t i = 0; i < stages_.size(); ++i) {
    ctx.check_cancelled();
    MINIACC_ASSIGN(const Stage* stage, stages_.get(i));
    x = run_stage(ctx, x.view(), *stage, config_.stages[static_cast<std::size_t>(i)],
                  config_.resblock_dilations);
    if (progress) {
      progress(static_cast<double>(i + 1) / static_cast<double>(stages_.size()));
    }
  }
  Tensor activated = empty_tensor(ctx.device, x.shape());
  activate(ctx, activated.view(), x.view(), ends_.activation_post);
  x = convolve(ctx, activated.view(), ends_.conv_post);  // [channels, 1, samples]
  x = to_host(ctx, std::move(x));

  Tensor waveform = empty_tensor(ctx.host_device(), {x.shape()[0], x.shape()[2]});
  for (std::size_t i = 0; i < waveform.f32().size(); ++i) {
    const float sample = x.f32()[i];
    if (!std::isfinite(sample)) {  // clamping would turn infinity into full volume
      const auto length = static_cast<std::size_t>(x.shape()[2]);
      return fail(ErrorCode::kInternal,
                  fmt::format("audio VAE: channel {}, sample {} of {} decoded to a value that is "
                              "not finite",
                              i / length, i % length, length));
    }
    waveform.f32()[i] = std::clamp(sample, -1.0F, 1.0F);
  }
  return waveform;
}

}  // namespace miniacc::audio_vae
