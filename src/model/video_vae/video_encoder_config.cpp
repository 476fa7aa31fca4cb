#include "model/video_vae/video_encoder_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "model/common/shape_check.h"

namespace miniacc::video_vae {
namespace {

constexpr const char* kComponent = "video VAE";
constexpr std::int64_t kMaxLevels = 64;  // bounds the search for the last level and block
constexpr std::int64_t kMaxBlocks = 64;
constexpr std::int64_t kLargestStride = 16;

/// Strides a config states for every level, or nothing where it is silent.
Result<std::vector<std::int64_t>> strides(const WeightSource& source, const char* key,
                                          std::size_t num_levels) {
  std::vector<std::int64_t> result;
  const auto values = source.config(key);
  if (!values) {
    return result;
  }
  const bool valid =
      values->size() == num_levels && std::all_of(values->begin(), values->end(), [](double value) {
        return value >= 1.0 && value <= static_cast<double>(kLargestStride) &&
               value == static_cast<double>(static_cast<std::int64_t>(value));
      });
  if (!valid) {
    return fail(
        ErrorCode::kInvalidInput,
        fmt::format("{}: config key {} is [{}], wanted {} whole numbers from 1 to {}, one a "
                    "level of the encoder",
                    kComponent, key, fmt::join(*values, ", "), num_levels, kLargestStride));
  }
  for (const double value : *values) {
    result.push_back(static_cast<std::int64_t>(value));
  }
  return result;
}

Status read_levels(const WeightSource& source, VideoEncoderConfig& config) {
  std::int64_t channels = config.first_channels;
  for (std::int64_t i = 0; i < kMaxLevels; ++i) {
    const auto conv1 = [i](std::int64_t block) {
      return fmt::format("encoder.down.{}.block.{}.conv1.weight", i, block);
    };
    if (!source.has(conv1(0))) {
      break;
    }
    MINIACC_ASSIGN(const Shape weight, vae::shape_of_rank(source, conv1(0), 5));
    EncoderLevel level{.in_channels = channels, .out_channels = weight[0]};
    while (level.num_blocks < kMaxBlocks && source.has(conv1(level.num_blocks))) {
      ++level.num_blocks;
    }
    level.downsample = source.has(fmt::format("encoder.down.{}.downsample.conv.weight", i));
    channels = level.out_channels;
    config.levels.push_back(level);
  }
  if (config.levels.empty()) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: encoder.down.0.block.0.conv1.weight is missing", kComponent));
  }
  return {};
}

/// Where the config is silent: halved picture at every downsampling, halved time at the second and
/// the third, as the released model does.
Status set_strides(const WeightSource& source, VideoEncoderConfig& config) {
  MINIACC_ASSIGN(const auto time, strides(source, "encoder_time_down", config.levels.size()));
  MINIACC_ASSIGN(const auto space, strides(source, "encoder_space_down", config.levels.size()));
  for (std::size_t i = 0; i < config.levels.size(); ++i) {
    EncoderLevel& level = config.levels[i];
    level.stride_hw = !space.empty() ? space[i] : (level.downsample ? 2 : 1);
    level.stride_t = !time.empty() ? time[i] : (level.downsample && (i == 1 || i == 2) ? 2 : 1);
    const bool fits =
        level.downsample ? level.stride_hw == 2 : level.stride_hw == 1 && level.stride_t == 1;
    if (!fits) {
      return fail(
          ErrorCode::kInvalidInput,
          fmt::format("{}: level {} of the encoder has {} and strides {} (time) and {} "
                      "(picture), wanted a picture stride of 2 where there is a "
                      "downsampling convolution and strides of 1 elsewhere",
                      kComponent, i, level.downsample ? "a downsample.conv" : "no downsample.conv",
                      level.stride_t, level.stride_hw));
    }
  }
  return {};
}

/// What the code takes for granted and a config may say otherwise.
Status check_variant(const WeightSource& source) {
  struct Assumption {
    const char* key;
    const char* wanted;
  };
  constexpr Assumption kAssumptions[] = {
      {"encoder_padding_is_reflect", "padding_mode (spatial_padding_mode) \"reflect\""},
      {"encoder_is_causal", "causal_encoder true"},
      {"encoder_norm_is_per_frame", "use_t_isolated_gn true"},
  };
  for (const Assumption& assumption : kAssumptions) {
    const auto value = source.config(assumption.key);
    if (value && *value != std::vector<double>{1.0}) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: this encoder is of another kind: its config.json does not say "
                              "{}, the only one supported",
                              kComponent, assumption.wanted));
    }
  }
  return {};
}

Status check_compression(const VideoEncoderConfig& encoder, const VideoVaeConfig& config) {
  std::int64_t time = 1;
  std::int64_t space = 1;
  for (const EncoderLevel& level : encoder.levels) {
    // Refused before the product can overflow.
    if (time > config.time.temporal_patch || space > config.spatial_patch) {
      break;
    }
    time *= level.stride_t;
    space *= level.stride_hw;
  }
  if (time != config.time.temporal_patch || space != config.spatial_patch) {
    return fail(
        ErrorCode::kInvalidInput,
        fmt::format("{}: the encoder shrinks time by {} and the picture by {}, the decoder "
                    "enlarges them by {} and {}",
                    kComponent, time, space, config.time.temporal_patch, config.spatial_patch));
  }
  return {};
}

}  // namespace

bool has_encoder(const WeightSource& source) { return source.has("encoder.conv_in.weight"); }

Result<VideoEncoderConfig> read_encoder_config(const WeightSource& source,
                                               const VideoVaeConfig& config) {
  if (!has_encoder(source)) {
    // A source that holds a damaged encoder says more.
    if (const auto shape = source.shape("encoder.conv_in.weight");
        !shape && shape.error().code == ErrorCode::kInvalidInput) {
      return tl::unexpected(shape.error());
    }
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: this file has only the decoder (encoder.conv_in.weight is "
                            "missing), so that it cannot encode pictures or clips; give a video "
                            "VAE with its encoder",
                            kComponent));
  }
  MINIACC_RETURN_IF_ERROR(check_variant(source));
  VideoEncoderConfig encoder;
  encoder.latent_channels = config.latent_channels;
  MINIACC_ASSIGN(const Shape conv_in, vae::shape_of_rank(source, "encoder.conv_in.weight", 5));
  encoder.first_channels = conv_in[0];
  MINIACC_RETURN_IF_ERROR(read_levels(source, encoder));
  MINIACC_RETURN_IF_ERROR(set_strides(source, encoder));
  MINIACC_RETURN_IF_ERROR(check_compression(encoder, config));
  MINIACC_ASSIGN(encoder.norm_num_groups,
                 vae::config_integer(source, "encoder_norm_groups", 32, 1, 1 << 20));
  MINIACC_ASSIGN(encoder.norm_eps, eps_config(source, kComponent, "encoder_norm_eps", 1e-6));
  std::vector<std::int64_t> widths = {encoder.first_channels};
  for (const EncoderLevel& level : encoder.levels) {
    widths.push_back(level.out_channels);
  }
  for (const std::int64_t width : widths) {
    if (width % encoder.norm_num_groups != 0) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: {} channels of the encoder do not divide into {} groups of the "
                              "norm (config key norm_num_groups)",
                              kComponent, width, encoder.norm_num_groups));
    }
  }
  return encoder;
}

}  // namespace miniacc::video_vae
