#include "model/video_vae/video_encoder_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "device/device.h"

namespace miniacc::video_vae {
namespace {

constexpr std::int64_t kKernel = 3;

/// Visits every module of the encoder by name and sizes: one walk serves checking and loading.
///   visitor.conv(slot, name, out, in), .norm(slot, name, channels), .linear(slot, name, out, in)
template <typename Visitor>
Status visit_modules(EncoderWeights& weights, const VideoEncoderConfig& config, Visitor& visitor) {
  MINIACC_RETURN_IF_ERROR(
      visitor.conv(weights.conv_in, "encoder.conv_in", config.first_channels, 3));
  weights.levels.resize(config.levels.size());
  for (std::size_t i = 0; i < config.levels.size(); ++i) {
    const EncoderLevel& level = config.levels[i];
    EncoderLevelWeights& slots = weights.levels[i];
    slots.blocks.resize(static_cast<std::size_t>(level.num_blocks));
    const std::int64_t out = level.out_channels;
    for (std::size_t j = 0; j < slots.blocks.size(); ++j) {
      EncoderBlock& block = slots.blocks[j];
      const std::string stem = fmt::format("encoder.down.{}.block.{}.", i, j);
      const std::int64_t in = j == 0 ? level.in_channels : out;
      MINIACC_RETURN_IF_ERROR(visitor.norm(block.norm1, stem + "norm1", in));
      MINIACC_RETURN_IF_ERROR(visitor.conv(block.conv1, stem + "conv1", out, in));
      MINIACC_RETURN_IF_ERROR(visitor.norm(block.norm2, stem + "norm2", out));
      MINIACC_RETURN_IF_ERROR(visitor.conv(block.conv2, stem + "conv2", out, out));
      if (in != out) {
        MINIACC_RETURN_IF_ERROR(visitor.linear(block.shortcut, stem + "nin_shortcut", out, in));
      }
    }
    if (level.downsample) {
      MINIACC_RETURN_IF_ERROR(visitor.conv(
          slots.downsample, fmt::format("encoder.down.{}.downsample.conv", i), out, out));
    }
  }
  const std::int64_t width = config.levels.back().out_channels;
  const std::int64_t moments = 2 * config.latent_channels;
  MINIACC_RETURN_IF_ERROR(visitor.norm(weights.norm_out, "encoder.norm_out", width));
  MINIACC_RETURN_IF_ERROR(visitor.conv(weights.conv_out, "encoder.conv_out", moments, width));
  return visitor.linear(weights.quant_conv, "quant_conv", moments, moments);
}

struct Checker {
  const WeightSource& source;

  Status pair(const std::string& name, const Shape& weight) {
    MINIACC_RETURN_IF_ERROR(vae::check_shape(source, name + ".weight", weight));
    return vae::check_shape(source, name + ".bias", Shape({weight[0]}));
  }
  Status conv(EncoderConv& /*slot*/, const std::string& name, std::int64_t out, std::int64_t in) {
    return pair(name, {out, in, kKernel, kKernel, kKernel});
  }
  Status norm(EncoderNorm& /*slot*/, const std::string& name, std::int64_t channels) {
    return pair(name, {channels});
  }
  Status linear(EncoderLinear& /*slot*/, const std::string& name, std::int64_t out,
                std::int64_t in) {
    return pair(name, {out, in, 1, 1, 1});
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
  Status conv(EncoderConv& slot, const std::string& name, std::int64_t out, std::int64_t in) {
    return pair(slot.weight, slot.bias, name, {out, in, kKernel, kKernel, kKernel});
  }
  Status norm(EncoderNorm& slot, const std::string& name, std::int64_t channels) {
    return pair(slot.weight, slot.bias, name, {channels});
  }
  Status linear(EncoderLinear& slot, const std::string& name, std::int64_t out, std::int64_t in) {
    Tensor stored;
    MINIACC_RETURN_IF_ERROR(pair(stored, slot.bias, name, {out, in, 1, 1, 1}));
    slot.weight.values = std::move(stored).reshaped({out, in});
    return {};
  }
};

}  // namespace

Status check_encoder_weights(const WeightSource& source, const VideoEncoderConfig& config) {
  Checker checker{source};
  EncoderWeights slots;
  return visit_modules(slots, config, checker);
}

Result<EncoderWeights> load_encoder_weights(WeightSource& source, const VideoEncoderConfig& config,
                                            Device& device) {
  Loader loader{source, device};
  EncoderWeights weights;
  MINIACC_RETURN_IF_ERROR(visit_modules(weights, config, loader));
  return weights;
}

}  // namespace miniacc::video_vae
