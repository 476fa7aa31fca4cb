#include "model/audio_vae/audio_vae_config.h"

#include <fmt/format.h>

namespace miniacc::audio_vae {
namespace {

constexpr std::int64_t kMaxStages = 64;  // bounds the search for the last stage
constexpr std::int64_t kMaxBlocks = 64;  // of residual blocks a stage, convolutions a block
constexpr std::int64_t kMaxDilation = 4096;
constexpr std::int64_t kMaxSamplesPerLatent = std::int64_t{1} << 20;

/// The released model's kernels imply their rates: 9 -> 5, 4 -> 2. Zero for other kernels.
std::int64_t rate_of_kernel(std::int64_t kernel) { return kernel == 9 ? 5 : kernel == 4 ? 2 : 0; }

Status read_ends(const WeightSource& source, AudioVaeConfig& config) {
  MINIACC_ASSIGN(const Shape in_proj, vae::shape_of_rank(source, "dec_in_proj.weight", 3));
  config.latent_dim = in_proj[0];
  config.latent_channels = in_proj[1];
  MINIACC_ASSIGN(const Shape pre, vae::shape_of_rank(source, "decoder.conv_pre.weight", 3));
  config.decoder_dim = pre[0];
  config.pre_kernel = pre[2];
  MINIACC_ASSIGN(const Shape post, vae::shape_of_rank(source, "decoder.conv_post.weight", 3));
  config.post_kernel = post[2];
  if (config.pre_kernel % 2 == 0 || config.post_kernel % 2 == 0) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("audio VAE: conv_pre and conv_post have kernels {} and {}, wanted odd "
                            "ones that keep the length",
                            config.pre_kernel, config.post_kernel));
  }
  return {};
}

Status read_stages(const WeightSource& source, AudioVaeConfig& config) {
  const auto rates = source.config("decoder_rates");
  std::int64_t channels = config.decoder_dim;
  std::int64_t samples = 1;
  for (std::int64_t i = 0; i < kMaxStages; ++i) {
    const std::string name = fmt::format("decoder.ups.{}.0.weight", i);
    if (!source.has(name)) {
      break;
    }
    MINIACC_ASSIGN(const Shape up, vae::shape_of_rank(source, name, 3));
    StageConfig stage{.in_channels = up[0],
                      .out_channels = up[1],
                      .kernel = up[2],
                      .rate = rate_of_kernel(up[2])};
    const auto index = static_cast<std::size_t>(i);
    if (rates && index < rates->size()) {
      const double rate = (*rates)[index];
      stage.rate = rate >= 1.0 && rate <= static_cast<double>(stage.kernel)
                       ? static_cast<std::int64_t>(rate)
                       : 0;
      if (static_cast<double>(stage.rate) != rate) {
        return fail(ErrorCode::kInvalidInput,
                    fmt::format("audio VAE: decoder_rates[{}] is {}, wanted a whole number from 1 "
                                "to the kernel {}",
                                i, rate, stage.kernel));
      }
    }
    if (stage.rate < 1 || (stage.kernel - stage.rate) % 2 != 0) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("audio VAE: {} has kernel {}, which does not go with rate {}; "
                              "decoder_rates must tell the rate",
                              name, stage.kernel, stage.rate));
    }
    samples *= stage.rate;
    if (stage.in_channels != channels || samples > kMaxSamplesPerLatent) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("audio VAE: {} is {}, wanted {} input channels and at most {} "
                              "samples a latent",
                              name, up.to_string(), channels, kMaxSamplesPerLatent));
    }
    channels = stage.out_channels;
    config.stages.push_back(stage);
  }
  if (config.stages.empty() || (rates && rates->size() != config.stages.size())) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("audio VAE: {} upsamplers decoder.ups.N.0.weight, wanted {}",
                            config.stages.size(),
                            rates ? fmt::format("{} as decoder_rates says", rates->size())
                                  : std::string("at least one")));
  }
  return {};
}

Status read_resblocks(const WeightSource& source, AudioVaeConfig& config) {
  const auto weight_name = [](std::int64_t block, std::int64_t convolution) {
    return fmt::format("decoder.resblocks.{}.convs1.{}.weight", block, convolution);
  };
  const auto stages = static_cast<std::int64_t>(config.stages.size());
  std::int64_t blocks = 0;
  while (blocks < kMaxBlocks * stages && source.has(weight_name(blocks, 0))) {
    ++blocks;
  }
  if (blocks == 0 || blocks % stages != 0) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("audio VAE: {} residual blocks for {} stages, wanted as many in each",
                            blocks, stages));
  }
  const auto dilations = source.config("resblock_dilation_sizes");
  std::size_t used = 0;
  for (std::int64_t block = 0; block < blocks / stages; ++block) {
    MINIACC_ASSIGN(const Shape weight, vae::shape_of_rank(source, weight_name(block, 0), 3));
    if (weight[2] % 2 == 0) {
      return fail(ErrorCode::kInvalidInput, fmt::format("{} is {}, wanted an odd kernel",
                                                        weight_name(block, 0), weight.to_string()));
    }
    config.resblock_kernels.push_back(weight[2]);
    std::vector<std::int64_t> row;
    for (std::int64_t n = 0; n < kMaxBlocks && source.has(weight_name(block, n)); ++n) {
      // 1, 3, 5, ... is the released model's row, in the code and not in its files.
      const double dilation = !dilations ? static_cast<double>(2 * n + 1)
                                         : (used < dilations->size() ? (*dilations)[used] : 0.0);
      ++used;
      if (!(dilation >= 1.0 && dilation <= static_cast<double>(kMaxDilation)) ||
          dilation != static_cast<double>(static_cast<std::int64_t>(dilation))) {
        return fail(
            ErrorCode::kInvalidInput,
            fmt::format("audio VAE: resblock_dilation_sizes gives {} for {}, wanted a whole "
                        "number from 1 to {}",
                        dilation, weight_name(block, n), kMaxDilation));
      }
      row.push_back(static_cast<std::int64_t>(dilation));
    }
    config.resblock_dilations.push_back(std::move(row));
  }
  if (dilations && used != dilations->size()) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("audio VAE: resblock_dilation_sizes has {} values, wanted {}, one a "
                            "convolution of a stage",
                            dilations->size(), used));
  }
  return {};
}

}  // namespace

std::int64_t AudioVaeConfig::samples_per_latent() const {
  std::int64_t samples = 1;
  for (const StageConfig& stage : stages) {
    samples *= stage.rate;
  }
  return samples;
}

Result<AudioVaeConfig> read_config(const WeightSource& source) {
  AudioVaeConfig config;
  MINIACC_RETURN_IF_ERROR(read_ends(source, config));
  MINIACC_RETURN_IF_ERROR(read_stages(source, config));
  MINIACC_RETURN_IF_ERROR(read_resblocks(source, config));
  MINIACC_ASSIGN(config.sample_rate_hz,
                 vae::config_integer(source, "sampling_rate", 32000, 1, 1 << 20));
  return config;
}

}  // namespace miniacc::audio_vae
