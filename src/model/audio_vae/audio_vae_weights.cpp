#include "model/audio_vae/audio_vae_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "device/device.h"
#include "kernels/copy.h"
#include "kernels/kaiser_filter.h"

namespace miniacc::audio_vae {
namespace {

// Statistics of the released model's latents, spec vae.md §1.
constexpr std::array<float, 32> kReleasedMean = {
    -0.020211687488382354F, 0.3876466479950502F,   -0.04398279799186767F, -0.28591514936373F,
    0.08179686214561671F,   -0.35782641352446604F, 0.040623809960919084F, -0.01552534501956604F,
    -0.223362481667332F,    0.1821006842509091F,   0.2941778783780663F,   -0.07901167601970885F,
    -0.056815072777201F,    -0.3699028221860095F,  -0.31616315591624855F, 0.5905951377425391F,
    -0.052139568068853864F, 0.013673160263486295F, -0.03691647864630577F, 0.09732660653298163F,
    -0.3394662328788498F,   -0.30685677538541667F, -0.24504598907458763F, -0.034698524462007344F,
    0.02868032184767538F,   -0.21217779266454084F, -0.1678263169941987F,  0.3221287889040614F,
    -0.1223055851554907F,   0.4356604928128464F,   -0.0502599202236253F,  0.3979258376211797F};
constexpr std::array<float, 32> kReleasedStd = {
    1.6895524230479284F, 2.76263727217653F,   1.7945344281264435F, 1.6801681847309828F,
    1.6390226546605453F, 2.7788298348882177F, 1.7659090095747236F, 1.6199757612137327F,
    2.6336525640336896F, 1.8539356672817833F, 2.5056497896915633F, 1.811019237886178F,
    1.9579657790720237F, 1.6685498243529284F, 1.4922469314453364F, 3.298670198067373F,
    1.9491804496832168F, 1.8720003270431442F, 1.8334080103291832F, 1.6488070416529093F,
    1.6176957696319716F, 1.9131449234774398F, 1.5695245398428617F, 1.6943659940415912F,
    1.8318420762504692F, 1.5540637421583379F, 1.9344930328968526F, 1.599198216109855F,
    1.718045989838149F,  1.6307219190837705F, 1.8661226051202384F, 1.5613768203168363F};

enum class Bias { kRequired, kOptional };

/// Shapes of a module's tensors, compared before any value is read.
struct ShapeChecker {
  const WeightSource& source;

  Status convolution(const std::string& name, const Shape& weight, std::int64_t out, Bias bias) {
    MINIACC_RETURN_IF_ERROR(vae::check_shape(source, name + ".weight", weight));
    if (bias == Bias::kOptional && !source.has(name + ".bias")) {
      return {};
    }
    return vae::check_shape(source, name + ".bias", Shape({out}));
  }

  Status activation(const std::string& name, std::int64_t channels) {
    MINIACC_RETURN_IF_ERROR(vae::check_shape(source, name + ".act.alpha", Shape({channels})));
    return vae::check_shape(source, name + ".act.beta", Shape({channels}));
  }
};

std::string resblock_name(const AudioVaeConfig& config, std::int64_t stage, std::size_t block) {
  const auto index = static_cast<std::size_t>(stage) * config.resblock_kernels.size() + block;
  return fmt::format("decoder.resblocks.{}", index);
}

Result<Convolution> load_convolution(WeightSource& source, const std::string& name,
                                     const Shape& weight, std::int64_t out, Bias bias,
                                     Device& device) {
  Convolution convolution;
  MINIACC_ASSIGN(convolution.weight, vae::load_tensor(source, name + ".weight", weight, device));
  if (bias == Bias::kRequired || source.has(name + ".bias")) {
    MINIACC_ASSIGN(convolution.bias,
                   vae::load_tensor(source, name + ".bias", Shape({out}), device));
  }
  return convolution;
}

Result<Tensor> load_filter(WeightSource& source, const std::string& name, Device& device) {
  const std::vector<float> computed = antialiasing_filter();
  const auto taps = static_cast<std::int64_t>(computed.size());
  if (source.has(name)) {
    MINIACC_ASSIGN(Tensor stored, vae::load_tensor(source, name, Shape({1, 1, taps}), device));
    return std::move(stored).reshaped({taps});
  }
  OpContext ctx{.device = device};
  return upload(ctx, std::span<const float>(computed), {taps});
}

Result<Activation> load_activation(WeightSource& source, const std::string& name,
                                   std::int64_t channels, Device& device) {
  const Shape vector({channels});
  Activation activation;
  MINIACC_ASSIGN(activation.alpha, vae::load_tensor(source, name + ".act.alpha", vector, device));
  MINIACC_ASSIGN(activation.beta, vae::load_tensor(source, name + ".act.beta", vector, device));
  MINIACC_ASSIGN(activation.up_filter, load_filter(source, name + ".upsample.filter", device));
  MINIACC_ASSIGN(activation.down_filter,
                 load_filter(source, name + ".downsample.lowpass.filter", device));
  return activation;
}

Result<ResBlock> load_resblock(WeightSource& source, const std::string& name, std::int64_t channels,
                               std::int64_t kernel, std::size_t count, Device& device) {
  const Shape weight({channels, channels, kernel});
  ResBlock block;
  for (std::size_t n = 0; n < count; ++n) {
    MINIACC_ASSIGN(Convolution first, load_convolution(source, fmt::format("{}.convs1.{}", name, n),
                                                       weight, channels, Bias::kRequired, device));
    block.convs1.push_back(std::move(first));
    MINIACC_ASSIGN(Convolution second,
                   load_convolution(source, fmt::format("{}.convs2.{}", name, n), weight, channels,
                                    Bias::kRequired, device));
    block.convs2.push_back(std::move(second));
  }
  for (std::size_t a = 0; a < 2 * count; ++a) {
    MINIACC_ASSIGN(
        Activation activation,
        load_activation(source, fmt::format("{}.activations.{}", name, a), channels, device));
    block.activations.push_back(std::move(activation));
  }
  return block;
}

Status check_stage(const WeightSource& source, const AudioVaeConfig& config, std::int64_t index) {
  const StageConfig& stage = config.stages[static_cast<std::size_t>(index)];
  const std::int64_t channels = stage.out_channels;
  ShapeChecker check{source};
  MINIACC_RETURN_IF_ERROR(check.convolution(fmt::format("decoder.ups.{}.0", index),
                                            {stage.in_channels, channels, stage.kernel}, channels,
                                            Bias::kRequired));
  for (std::size_t block = 0; block < config.resblock_kernels.size(); ++block) {
    const std::string name = resblock_name(config, index, block);
    const Shape weight({channels, channels, config.resblock_kernels[block]});
    const std::size_t count = config.resblock_dilations[block].size();
    for (std::size_t n = 0; n < count; ++n) {
      for (const char* kind : {"convs1", "convs2"}) {
        MINIACC_RETURN_IF_ERROR(check.convolution(fmt::format("{}.{}.{}", name, kind, n), weight,
                                                  channels, Bias::kRequired));
      }
    }
    for (std::size_t a = 0; a < 2 * count; ++a) {
      MINIACC_RETURN_IF_ERROR(
          check.activation(fmt::format("{}.activations.{}", name, a), channels));
    }
  }
  return {};
}

}  // namespace

std::size_t Stage::size_bytes() const {
  std::size_t bytes = up.size_bytes();
  for (const ResBlock& block : resblocks) {
    for (const Convolution& convolution : block.convs1) {
      bytes += convolution.size_bytes();
    }
    for (const Convolution& convolution : block.convs2) {
      bytes += convolution.size_bytes();
    }
    for (const Activation& activation : block.activations) {
      bytes += activation.size_bytes();
    }
  }
  return bytes;
}

Status check_weights(const WeightSource& source, const AudioVaeConfig& config) {
  ShapeChecker check{source};
  const std::int64_t last = config.stages.back().out_channels;
  MINIACC_RETURN_IF_ERROR(check.convolution("dec_in_proj",
                                            {config.latent_dim, config.latent_channels, 1},
                                            config.latent_dim, Bias::kRequired));
  MINIACC_RETURN_IF_ERROR(check.convolution(
      "decoder.conv_pre", {config.decoder_dim, config.latent_dim, config.pre_kernel},
      config.decoder_dim, Bias::kRequired));
  MINIACC_RETURN_IF_ERROR(check.activation("decoder.activation_post", last));
  MINIACC_RETURN_IF_ERROR(
      check.convolution("decoder.conv_post", {1, last, config.post_kernel}, 1, Bias::kOptional));
  for (std::size_t index = 0; index < config.stages.size(); ++index) {
    MINIACC_RETURN_IF_ERROR(check_stage(source, config, static_cast<std::int64_t>(index)));
  }
  return {};
}

Result<Stage> load_stage(WeightSource& source, const AudioVaeConfig& config, std::int64_t index,
                         Device& device) {
  const StageConfig& sizes = config.stages[static_cast<std::size_t>(index)];
  Stage stage;
  MINIACC_ASSIGN(stage.up, load_convolution(source, fmt::format("decoder.ups.{}.0", index),
                                            {sizes.in_channels, sizes.out_channels, sizes.kernel},
                                            sizes.out_channels, Bias::kRequired, device));
  for (std::size_t block = 0; block < config.resblock_kernels.size(); ++block) {
    MINIACC_ASSIGN(ResBlock resblock,
                   load_resblock(source, resblock_name(config, index, block), sizes.out_channels,
                                 config.resblock_kernels[block],
                                 config.resblock_dilations[block].size(), device));
    stage.resblocks.push_back(std::move(resblock));
  }
  return stage;
}

Result<Ends> load_ends(WeightSource& source, const AudioVaeConfig& config, Device& device) {
  const std::int64_t last = config.stages.back().out_channels;
  Ends ends;
  MINIACC_ASSIGN(ends.dec_in_proj, load_convolution(source, "dec_in_proj",
                                                    {config.latent_dim, config.latent_channels, 1},
                                                    config.latent_dim, Bias::kRequired, device));
  MINIACC_ASSIGN(ends.conv_pre,
                 load_convolution(source, "decoder.conv_pre",
                                  {config.decoder_dim, config.latent_dim, config.pre_kernel},
                                  config.decoder_dim, Bias::kRequired, device));
  MINIACC_ASSIGN(ends.activation_post,
                 load_activation(source, "decoder.activation_post", last, device));
  MINIACC_ASSIGN(ends.conv_post,
                 load_convolution(source, "decoder.conv_post", {1, last, config.post_kernel}, 1,
                                  Bias::kOptional, device));
  return ends;
}

Result<vae::LatentStatistics> load_statistics(WeightSource& source, const AudioVaeConfig& config,
                                              Device& device) {
  return vae::latent_statistics(source, config.latent_channels, kReleasedMean, kReleasedStd,
                                device);
}

}  // namespace miniacc::audio_vae
