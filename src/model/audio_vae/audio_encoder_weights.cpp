#include "model/audio_vae/audio_encoder_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "device/cpu_device.h"
#include "kernels/copy.h"

namespace miniacc::audio_vae {
namespace {

/// Visits every module of the encoder by name and sizes: one walk serves checking and loading.
template <typename Visitor>
Status visit_trunk(EncoderWeights& weights, const AudioEncoderConfig& config, Visitor& visitor) {
  MINIACC_RETURN_IF_ERROR(visitor.conv(weights.first, "encoder.block.0",
                                       {config.first_channels, 1, config.first_kernel}));
  weights.stages.resize(config.stages.size());
  for (std::size_t s = 0; s < config.stages.size(); ++s) {
    const EncoderStageConfig& sizes = config.stages[s];
    EncoderStage& stage = weights.stages[s];
    stage.units.resize(static_cast<std::size_t>(sizes.num_units));
    const std::string stem = fmt::format("encoder.block.{}.block.", s + 1);
    const std::int64_t c = sizes.channels;
    for (std::size_t u = 0; u < stage.units.size(); ++u) {
      ResidualUnit& unit = stage.units[u];
      const std::string name = fmt::format("{}{}.block.", stem, u);
      MINIACC_RETURN_IF_ERROR(visitor.alpha(unit.alpha1, name + "0.alpha", c));
      MINIACC_RETURN_IF_ERROR(visitor.conv(unit.dilated, name + "1", {c, c, 7}));
      MINIACC_RETURN_IF_ERROR(visitor.alpha(unit.alpha2, name + "2.alpha", c));
      MINIACC_RETURN_IF_ERROR(visitor.conv(unit.mix, name + "3", {c, c, 1}));
    }
    MINIACC_RETURN_IF_ERROR(
        visitor.alpha(stage.alpha, fmt::format("{}{}.alpha", stem, sizes.num_units), c));
    MINIACC_RETURN_IF_ERROR(visitor.conv(stage.strided,
                                         fmt::format("{}{}", stem, sizes.num_units + 1),
                                         {sizes.out_channels, c, 2 * sizes.stride}));
  }
  const std::size_t last = config.stages.size() + 1;
  const std::int64_t width = config.stages.back().out_channels;
  MINIACC_RETURN_IF_ERROR(
      visitor.alpha(weights.last_alpha, fmt::format("encoder.block.{}.alpha", last), width));
  return visitor.conv(weights.last, fmt::format("encoder.block.{}", last + 1),
                      {config.latent_dim, width, config.last_kernel});
}

template <typename Visitor>
Status visit_pre_block(PreBlock& block, const AudioEncoderConfig& config, Visitor& visitor) {
  const std::int64_t d = config.latent_dim;
  const std::int64_t c = config.latent_channels;
  const std::int64_t f = config.ffn_hidden_size;
  MINIACC_RETURN_IF_ERROR(visitor.norm(block.norm1, "pre_block.norm1", d));
  MINIACC_RETURN_IF_ERROR(visitor.norm(block.norm2, "pre_block.norm2", c));
  MINIACC_RETURN_IF_ERROR(visitor.norm(block.norm3, "pre_block.norm3", d));
  MINIACC_RETURN_IF_ERROR(visitor.qkv(block.qkv, "pre_block.attn.", d));
  MINIACC_RETURN_IF_ERROR(visitor.linear(block.attn_proj, "pre_block.attn.proj", {c, c}));
  MINIACC_RETURN_IF_ERROR(visitor.linear(block.proj, "pre_block.proj", {c, d}));
  MINIACC_RETURN_IF_ERROR(visitor.norm(block.mlp_norm, "pre_block.mlp.norm", c));
  MINIACC_RETURN_IF_ERROR(visitor.linear(block.w0, "pre_block.mlp.w0", {f, c}));
  MINIACC_RETURN_IF_ERROR(visitor.linear(block.w1, "pre_block.mlp.w1", {f, c}));
  MINIACC_RETURN_IF_ERROR(visitor.linear(block.w2, "pre_block.mlp.w2", {c, f}));
  return visitor.linear(block.mean_proj, "mean_proj", {c, c, 1});
}

struct Checker {
  const WeightSource& source;

  Status pair(const std::string& name, const Shape& weight) {
    MINIACC_RETURN_IF_ERROR(vae::check_shape(source, name + ".weight", weight));
    return vae::check_shape(source, name + ".bias", Shape({weight[0]}));
  }
  Status conv(Convolution& /*slot*/, const std::string& name, const Shape& weight) {
    return pair(name, weight);
  }
  Status alpha(Tensor& /*slot*/, const std::string& name, std::int64_t channels) {
    return vae::check_shape(source, name, Shape({1, channels, 1}));
  }
  Status norm(NormWeights& /*slot*/, const std::string& name, std::int64_t channels) {
    return pair(name, {channels});
  }
  Status linear(LinearWeights& /*slot*/, const std::string& name, const Shape& weight) {
    return pair(name, weight);
  }
  Status qkv(LinearWeights& /*slot*/, const std::string& stem, std::int64_t width) {
    MINIACC_RETURN_IF_ERROR(
        vae::check_shape(source, stem + "qkv.weight", Shape({3 * width, width})));
    MINIACC_RETURN_IF_ERROR(vae::check_shape(source, stem + "q_bias", Shape({width})));
    return vae::check_shape(source, stem + "v_bias", Shape({width}));
  }
};

struct Loader {
  WeightSource& source;
  Device& device;

  Status pair(Tensor& weight, Tensor& bias, const std::string& name, const Shape& shape) {
    MINIACC_ASSIGN(weight, vae::load_tensor(source, name + ".weight", shape, device));
    MINIACC_ASSIGN(bias, vae::load_tensor(source, name + ".bias", Shape({shape[0]}), device));
    return {};
  }
  Status conv(Convolution& slot, const std::string& name, const Shape& weight) {
    return pair(slot.weight, slot.bias, name, weight);
  }
  Status alpha(Tensor& slot, const std::string& name, std::int64_t channels) {
    MINIACC_ASSIGN(Tensor stored, vae::load_tensor(source, name, Shape({1, channels, 1}), device));
    slot = std::move(stored).reshaped({channels});
    return {};
  }
  Status norm(NormWeights& slot, const std::string& name, std::int64_t channels) {
    return pair(slot.weight, slot.bias, name, {channels});
  }
  Status linear(LinearWeights& slot, const std::string& name, const Shape& weight) {
    Tensor stored;
    MINIACC_RETURN_IF_ERROR(pair(stored, slot.bias, name, weight));
    slot.weight.values = std::move(stored).reshaped({weight[0], weight[1]});
    return {};
  }
  /// Keys have no bias: their part of the fused one is zero.
  Status qkv(LinearWeights& slot, const std::string& stem, std::int64_t width) {
    MINIACC_ASSIGN(slot.weight.values, vae::load_tensor(source, stem + "qkv.weight",
                                                        Shape({3 * width, width}), device));
    CpuDevice host;
    MINIACC_ASSIGN(const Tensor q, vae::load_tensor(source, stem + "q_bias", Shape({width}), host));
    MINIACC_ASSIGN(const Tensor v, vae::load_tensor(source, stem + "v_bias", Shape({width}), host));
    std::vector<float> bias(static_cast<std::size_t>(3 * width), 0.0F);
    std::copy(q.f32().begin(), q.f32().end(), bias.begin());
    std::copy(v.f32().begin(), v.f32().end(), bias.begin() + 2 * width);
    OpContext ctx{.device = device, .host = &host};
    slot.bias = upload(ctx, std::span<const float>(bias), {3 * width});
    return {};
  }
};

template <typename Visitor>
Status visit_modules(EncoderWeights& weights, const AudioEncoderConfig& config, Visitor& visitor) {
  MINIACC_RETURN_IF_ERROR(visit_trunk(weights, config, visitor));
  return visit_pre_block(weights.pre_block, config, visitor);
}

}  // namespace

Status check_encoder_weights(const WeightSource& source, const AudioEncoderConfig& config) {
  Checker checker{source};
  EncoderWeights slots;
  return visit_modules(slots, config, checker);
}

Result<EncoderWeights> load_encoder_weights(WeightSource& source, const AudioEncoderConfig& config,
                                            Device& device) {
  Loader loader{source, device};
  EncoderWeights weights;
  MINIACC_RETURN_IF_ERROR(visit_modules(weights, config, loader));
  return weights;
}

}  // namespace miniacc::audio_vae
