#include "model/video_vae/tile_encoder.h"

#include <utility>

#include "kernels/conv3d.h"
#include "kernels/group_norm.h"
#include "kernels/linear.h"

namespace miniacc::video_vae {
namespace {

constexpr std::int64_t kPastFrames = 2;  // kernel 3, causal

Shape with_channels(const Shape& shape, std::int64_t channels) {
  Shape result = shape;
  result.set(4, channels);
  return result;
}

/// The factors of a norm, one a frame and channel.
struct NormFactors {
  Tensor scale;
  Tensor shift;

  [[nodiscard]] ops::NormalizedInput view() const { return {scale.view(), shift.view()}; }
};

NormFactors norm_factors(OpContext& ctx, ConstTensorView x, const EncoderNorm& norm,
                         const VideoEncoderConfig& config) {
  const std::int64_t frames = x.dim(0) * x.dim(1);
  NormFactors factors{empty_tensor(ctx.device, {frames, x.dim(4)}),
                      empty_tensor(ctx.device, {frames, x.dim(4)})};
  ops::group_norm_coefficients(ctx, factors.scale.view(), factors.shift.view(),
                               x.reshape(Shape({frames, x.dim(2) * x.dim(3), x.dim(4)})),
                               norm.weight.view(), norm.bias.view(), config.norm_num_groups,
                               config.norm_eps);
  return factors;
}

/// A convolution that keeps the size.
Tensor convolve(OpContext& ctx, ConstTensorView x, const EncoderConv& conv,
                const ops::NormalizedInput& normalize = {}) {
  Tensor out = empty_tensor(ctx.device, with_channels(x.shape, conv.weight.shape()[0]));
  ops::conv3d(
      ctx, out.view(), x, conv.weight.view(), conv.bias.view(),
      {.past_frames = kPastFrames, .pad_before = 1, .pad_after = 1, .normalize = normalize});
  return out;
}

Tensor project(OpContext& ctx, ConstTensorView x, const EncoderLinear& linear) {
  const std::int64_t out_channels = linear.weight.values.shape()[0];
  const std::int64_t rows = x.num_elements() / x.dim(4);
  Tensor out = empty_tensor(ctx.device, with_channels(x.shape, out_channels));
  ops::linear(ctx, out.view().reshape(Shape({rows, out_channels})),
              x.reshape(Shape({rows, x.dim(4)})), linear.weight.view(), linear.bias.view());
  return out;
}

Tensor downsample(OpContext& ctx, ConstTensorView x, const EncoderConv& conv,
                  const EncoderLevel& level) {
  const auto shrunk = [](std::int64_t size, std::int64_t stride) {
    return (size - 1) / stride + 1;
  };
  // One row and column reflected at the end: (size + 1 - 3) / 2 + 1 = size / 2, rounded down.
  Tensor out = empty_tensor(ctx.device, {x.dim(0), shrunk(x.dim(1), level.stride_t), x.dim(2) / 2,
                                         x.dim(3) / 2, conv.weight.shape()[0]});
  ops::conv3d(ctx, out.view(), x, conv.weight.view(), conv.bias.view(),
              {.stride_t = level.stride_t,
               .stride_hw = level.stride_hw,
               .past_frames = kPastFrames,
               .pad_after = 1});
  return out;
}

}  // namespace

void run_encoder_block(OpContext& ctx, Tensor& x, const EncoderBlock& block,
                       const VideoEncoderConfig& config) {
  const NormFactors first = norm_factors(ctx, x.view(), block.norm1, config);
  Tensor y = convolve(ctx, x.view(), block.conv1, first.view());
  const NormFactors second = norm_factors(ctx, y.view(), block.norm2, config);
  if (!block.shortcut.bias.empty()) {
    x = project(ctx, x.view(), block.shortcut);
  }
  ops::conv3d(ctx, x.view(), y.view(), block.conv2.weight.view(), block.conv2.bias.view(),
              {.past_frames = kPastFrames,
               .pad_before = 1,
               .pad_after = 1,
               .normalize = second.view(),
               .accumulate = true});
}

void run_encoder_level(OpContext& ctx, Tensor& x, const EncoderLevelWeights& weights,
                       const EncoderLevel& level, const VideoEncoderConfig& config) {
  for (const EncoderBlock& block : weights.blocks) {
    ctx.check_cancelled();
    run_encoder_block(ctx, x, block, config);
  }
  if (level.downsample) {
    x = downsample(ctx, x.view(), weights.downsample, level);
  }
}

Tensor encode_tiles(OpContext& ctx, ConstTensorView pixels, const EncoderWeights& weights,
                    const VideoEncoderConfig& config) {
  MINIACC_REQUIRE(pixels.shape.rank() == 5 && pixels.dim(4) == 3 && pixels.is_contiguous(),
                  "encode_tiles: pixels are [n, frames, height, width, 3]");
  Tensor x = convolve(ctx, pixels, weights.conv_in);  // [n, frames, height, width, channels]
  for (std::size_t i = 0; i < weights.levels.size(); ++i) {
    run_encoder_level(ctx, x, weights.levels[i], config.levels[i], config);
  }
  const NormFactors last = norm_factors(ctx, x.view(), weights.norm_out, config);
  x = convolve(ctx, x.view(), weights.conv_out, last.view());
  return project(ctx, x.view(), weights.quant_conv);
}

}  // namespace miniacc::video_vae
