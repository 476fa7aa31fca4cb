#include "model/audio_vae/audio_encoder_config.h"

#include <fmt/format.h>

namespace miniacc::audio_vae {
namespace {

constexpr std::int64_t kMaxStages = 64;  // bounds the search for the last stage
constexpr std::int64_t kMaxUnits = 8;    // of a stage: dilations up to 3^7
constexpr std::int64_t kUnitKernel = 7;
constexpr std::int64_t kMaxStride = 4096;

Status read_stages(const WeightSource& source, AudioEncoderConfig& encoder) {
  const auto rates = source.config("encoder_rates");
  std::int64_t channels = encoder.first_channels;
  std::int64_t samples = 1;
  for (std::int64_t s = 1; s <= kMaxStages; ++s) {
    const auto unit = [s](std::int64_t u) {
      return fmt::format("encoder.block.{}.block.{}.block.1.weight", s, u);
    };
    if (!source.has(unit(0))) {
      break;
    }
    EncoderStageConfig stage{.channels = channels};
    while (stage.num_units < kMaxUnits && source.has(unit(stage.num_units))) {
      ++stage.num_units;
    }
    const std::string name =
        fmt::format("encoder.block.{}.block.{}.weight", s, stage.num_units + 1);
    MINIACC_ASSIGN(const Shape strided, vae::shape_of_rank(source, name, 3));
    stage.out_channels = strided[0];
    stage.stride = strided[2] / 2;
    samples *= stage.stride;
    if (strided[1] != channels || strided[2] % 2 != 0 || stage.stride < 2 ||
        stage.stride > kMaxStride || samples > kMaxStride) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("audio VAE: {} is {}, wanted {} input channels and a kernel of twice "
                              "the stride (2 or more), at most {} samples a latent",
                              name, strided.to_string(), channels, kMaxStride));
    }
    const auto index = static_cast<std::size_t>(s - 1);
    if (rates && (index >= rates->size() || (*rates)[index] != static_cast<double>(stage.stride))) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("audio VAE: {} is {}, which means a stride of {}; encoder_rates says "
                              "otherwise",
                              name, strided.to_string(), stage.stride));
    }
    channels = stage.out_channels;
    encoder.stages.push_back(stage);
  }
  if (encoder.stages.empty() || (rates && rates->size() != encoder.stages.size())) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("audio VAE: {} stages of the encoder (encoder.block.N.block.0...), "
                            "wanted {}",
                            encoder.stages.size(),
                            rates ? fmt::format("{} as encoder_rates says", rates->size())
                                  : std::string("at least one")));
  }
  return {};
}

Status read_projection(const WeightSource& source, AudioEncoderConfig& encoder) {
  const std::string last = fmt::format("encoder.block.{}.weight", encoder.stages.size() + 2);
  MINIACC_ASSIGN(const Shape trunk, vae::shape_of_rank(source, last, 3));
  encoder.latent_dim = trunk[0];
  encoder.last_kernel = trunk[2];
  if (encoder.first_kernel % 2 == 0 || encoder.last_kernel % 2 == 0) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("audio VAE: encoder.block.0 and {} have kernels {} and {}, wanted odd "
                            "ones that keep the length",
                            last, encoder.first_kernel, encoder.last_kernel));
  }
  MINIACC_ASSIGN(const Shape w0, vae::shape_of_rank(source, "pre_block.mlp.w0.weight", 2));
  encoder.ffn_hidden_size = w0[0];
  MINIACC_ASSIGN(encoder.num_heads,
                 vae::config_integer(source, "encoder_num_heads", 8, 1, encoder.latent_dim));
  const std::int64_t head_dim = encoder.latent_dim / encoder.num_heads;
  if (encoder.latent_dim % encoder.num_heads != 0 || head_dim % encoder.latent_channels != 0) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("audio VAE: the width {} of pre_block in {} heads does not pool to {} "
                            "latent channels in whole groups",
                            encoder.latent_dim, encoder.num_heads, encoder.latent_channels));
  }
  return {};
}

}  // namespace

std::int64_t AudioEncoderConfig::samples_per_latent() const {
  std::int64_t samples = 1;
  for (const EncoderStageConfig& stage : stages) {
    samples *= stage.stride;
  }
  return samples;
}

std::int64_t AudioEncoderConfig::context_latents() const {
  std::int64_t rate = 1;  // samples a step of the layer at hand
  std::int64_t reach = first_kernel / 2;
  for (const EncoderStageConfig& stage : stages) {
    std::int64_t dilation = 1;
    for (std::int64_t u = 0; u < stage.num_units; ++u, dilation *= 3) {
      reach += rate * dilation * (kUnitKernel / 2);
    }
    // An output of the strided convolution sees inputs from -padding to 2·stride - padding - 1.
    reach += rate * 2 * stage.stride;
    rate *= stage.stride;
  }
  reach += rate * (last_kernel / 2);
  return (reach + rate - 1) / rate;
}

bool has_encoder(const WeightSource& source) { return source.has("encoder.block.0.weight"); }

Result<AudioEncoderConfig> read_encoder_config(const WeightSource& source,
                                               const AudioVaeConfig& config) {
  if (!has_encoder(source)) {
    // A source that holds a damaged encoder says more.
    if (const auto shape = source.shape("encoder.block.0.weight");
        !shape && shape.error().code == ErrorCode::kInvalidInput) {
      return tl::unexpected(shape.error());
    }
    return fail(ErrorCode::kInvalidInput,
                "audio VAE: this file has only the decoder (encoder.block.0.weight is missing), so "
                "that it cannot encode sounds; give an audio VAE with its encoder");
  }
  AudioEncoderConfig encoder;
  encoder.latent_channels = config.latent_channels;
  encoder.sample_rate_hz = config.sample_rate_hz;
  MINIACC_ASSIGN(const Shape first, vae::shape_of_rank(source, "encoder.block.0.weight", 3));
  encoder.first_channels = first[0];
  encoder.first_kernel = first[2];
  MINIACC_RETURN_IF_ERROR(read_stages(source, encoder));
  MINIACC_RETURN_IF_ERROR(read_projection(source, encoder));
  if (encoder.samples_per_latent() != config.samples_per_latent()) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("audio VAE: the encoder makes a latent of {} samples, the decoder {} "
                            "samples of a latent",
                            encoder.samples_per_latent(), config.samples_per_latent()));
  }
  return encoder;
}

}  // namespace miniacc::audio_vae
