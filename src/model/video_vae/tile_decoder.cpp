#include "model/video_vae/tile_decoder.h"

#include <algorithm>
#include <cmath>

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/copy.h"
#include "kernels/linear.h"
#include "kernels/norm.h"
#include "kernels/residual.h"
#include "kernels/rope.h"

namespace miniacc::video_vae {
namespace {

struct WorkspaceSizes {
  std::int64_t wide = 0;
  std::int64_t narrow = 0;
  std::int64_t hidden = 0;
};

WorkspaceSizes workspace_sizes(const VideoVaeConfig& config, const TileShape& tile) {
  const std::int64_t rows = tile.num_tokens() + config.num_suffix_tokens();
  return {.wide = rows * std::max({3 * config.hidden_size, 2 * config.ffn_hidden_size,
                                   config.values_per_token()}),
          .narrow = rows * std::max(config.hidden_size, config.ffn_hidden_size),
          .hidden = rows * config.hidden_size};
}

TensorView part_of(Tensor& storage, std::int64_t rows, std::int64_t columns) {
  MINIACC_REQUIRE(rows * columns <= storage.shape().num_elements(), "workspace: too small");
  TensorView view = storage.view();
  return {view.data, Shape({rows, columns}), DType::kF32, view.device};
}

/// Columns [first, first + heads·head_dim) of a [rows, ...] matrix as [rows, heads, head_dim].
TensorView as_heads(TensorView matrix, std::int64_t first, std::int64_t heads,
                    std::int64_t head_dim) {
  const TensorView columns = matrix.narrow(1, first, heads * head_dim);
  TensorView view(columns.data, Shape({matrix.dim(0), heads, head_dim}), columns.dtype,
                  columns.device);
  view.strides[0] = matrix.stride(0);
  return view;
}

}  // namespace

TileWorkspace::TileWorkspace(const VideoVaeConfig& config, const TileShape& tile, Device& device) {
  const WorkspaceSizes sizes = workspace_sizes(config, tile);
  wide_ = empty_tensor(device, {sizes.wide});
  narrow_ = empty_tensor(device, {sizes.narrow});
  normed_ = empty_tensor(device, {sizes.hidden});
  branch_ = empty_tensor(device, {sizes.hidden});
}

std::size_t TileWorkspace::size_bytes(const VideoVaeConfig& config, const TileShape& tile) {
  const WorkspaceSizes sizes = workspace_sizes(config, tile);
  return sizeof(float) * static_cast<std::size_t>(sizes.wide + sizes.narrow + 2 * sizes.hidden);
}

TensorView TileWorkspace::wide(std::int64_t rows, std::int64_t columns) {
  return part_of(wide_, rows, columns);
}
TensorView TileWorkspace::narrow(std::int64_t rows, std::int64_t columns) {
  return part_of(narrow_, rows, columns);
}
TensorView TileWorkspace::normed(std::int64_t rows, std::int64_t columns) {
  return part_of(normed_, rows, columns);
}
TensorView TileWorkspace::branch(std::int64_t rows, std::int64_t columns) {
  return part_of(branch_, rows, columns);
}

void gather_tokens(TensorView tokens, ConstTensorView latents,
                   const vae::LatentStatistics& statistics, const TileOrigin& origin,
                   const TileShape& tile) {
  const std::int64_t channels = latents.dim(0);
  MINIACC_REQUIRE(tokens.shape == Shape({tile.num_tokens(), channels}) && tokens.is_contiguous() &&
                      latents.is_contiguous() && origin.h + tile.h <= latents.dim(2) &&
                      origin.w + tile.w <= latents.dim(3),
                  "gather_tokens: tokens [tokens, C] of a tile inside latents [C, T, h, w]");
  float* target = tokens.f32();
  for (std::int64_t t = origin.t; t < origin.t + tile.t; ++t) {
    const std::int64_t step = std::min(t, latents.dim(1) - 1);
    for (std::int64_t h = origin.h; h < origin.h + tile.h; ++h) {
      for (std::int64_t w = origin.w; w < origin.w + tile.w; ++w) {
        const float* source = latents.f32() + (step * latents.dim(2) + h) * latents.dim(3) + w;
        for (std::int64_t c = 0; c < channels; ++c) {
          const auto channel = static_cast<std::size_t>(c);
          *target++ =
              source[c * latents.stride(0)] * statistics.std[channel] + statistics.mean[channel];
        }
      }
    }
  }
}

void embed_tile(OpContext& ctx, TensorView h, ConstTensorView latents, const Shell& shell,
                TileWorkspace& workspace) {
  const std::int64_t tokens = latents.dim(0);
  const TensorView mixed = workspace.narrow(tokens, latents.dim(1));
  ops::linear(ctx, mixed, latents, shell.post_quant_conv.view(), shell.post_quant_conv_bias.view());
  ops::linear(ctx, h.narrow(0, 0, tokens), mixed, shell.x_embedder.view(),
              shell.x_embedder_bias.view());
  const std::int64_t registers = shell.register_tokens.shape()[1];
  ops::copy(ctx, h.narrow(0, tokens, registers),
            shell.register_tokens.view().reshape({registers, h.dim(1)}));
  ops::fill_zero(ctx, h.narrow(0, tokens + registers, 1));
}

void run_block(OpContext& ctx, TensorView h, const Block& block, const RopeTable& rope,
               const VideoVaeConfig& config, Precision precision, TileWorkspace& workspace) {
  const std::int64_t rows = h.dim(0);
  const std::int64_t d = config.hidden_size;
  const std::int64_t f = config.ffn_hidden_size;
  const TensorView normed = workspace.normed(rows, d);
  const TensorView branch = workspace.branch(rows, d);

  ops::rms_norm(ctx, normed, h, block.norm1, config.norm_eps);
  const TensorView qkv = workspace.wide(rows, 3 * d);
  ops::linear(ctx, qkv, normed, block.to_qkv, block.to_qkv_bias);
  const TensorView q = as_heads(qkv, 0, config.num_heads, config.head_dim);
  const TensorView k = as_heads(qkv, d, config.num_heads, config.head_dim);
  const TensorView v = as_heads(qkv, 2 * d, config.num_heads, config.head_dim);
  for (const TensorView& heads : {q, k}) {
    ops::rms_norm(ctx, heads, heads, {}, config.norm_eps);
    ops::apply_rope(ctx, heads, rope.cos.view(), rope.sin.view());
  }
  const TensorView mixed = workspace.narrow(rows, d);
  const ops::AttentionOptions attention{
      .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim))),
      .precision = precision == Precision::kF32 ? Precision::kF32 : Precision::kBF16};
  ops::attention(ctx, as_heads(mixed, 0, config.num_heads, config.head_dim), q, k, v, attention);
  ops::linear(ctx, branch, mixed, block.to_out, block.to_out_bias);
  ops::gated_add(ctx, h, branch, block.scale1, {});

  ops::rms_norm(ctx, normed, h, block.norm2, config.norm_eps);
  const TensorView gate_up = workspace.wide(rows, 2 * f);
  ops::linear(ctx, gate_up, normed, block.w1, block.w1_bias);
  const TensorView activated = workspace.narrow(rows, f);
  ops::silu_mul(ctx, activated, gate_up.narrow(1, 0, f), gate_up.narrow(1, f, f));
  ops::linear(ctx, branch, activated, block.w2, block.w2_bias);
  ops::gated_add(ctx, h, branch, block.scale2, {});
}

TensorView project_tile(OpContext& ctx, ConstTensorView h, const Shell& shell,
                        const VideoVaeConfig& config, TileWorkspace& workspace) {
  const std::int64_t tokens = h.dim(0) - config.num_suffix_tokens();
  const TensorView normed = workspace.normed(tokens, config.hidden_size);
  ops::layer_norm(ctx, normed, h.narrow(0, 0, tokens), shell.norm_out_weight.view(),
                  shell.norm_out_bias.view(), config.norm_eps);
  const TensorView values = workspace.wide(tokens, config.values_per_token());
  ops::linear(ctx, values, normed, shell.proj_out.view(), shell.proj_out_bias.view());
  return values;
}

void unpatchify(TensorView pixels, ConstTensorView values, const TileShape& tile,
                const VideoVaeConfig& config) {
  const std::int64_t patch = config.spatial_patch;
  const std::int64_t frames = config.time.temporal_patch;
  const std::int64_t height = tile.h * patch;
  const std::int64_t width = tile.w * patch;
  MINIACC_REQUIRE(pixels.shape == Shape({config.time.kept_frames(), 3, height, width}) &&
                      values.shape == Shape({tile.num_tokens(), config.values_per_token()}) &&
                      pixels.is_contiguous() && values.is_contiguous(),
                  "unpatchify: [kept_frames, 3, height, width] from [tokens, values]");
  for (std::int64_t token = 0; token < tile.num_tokens(); ++token) {
    const std::int64_t it = token / (tile.h * tile.w);
    const std::int64_t ih = token / tile.w % tile.h;
    const std::int64_t iw = token % tile.w;
    for (std::int64_t plane = 0; plane < 3 * frames; ++plane) {
      const std::int64_t channel = plane / frames;
      const std::int64_t frame = config.time.kept_index(it * frames + plane % frames);
      if (frame < 0) {
        continue;
      }
      const float* source =
          values.f32() + token * config.values_per_token() + plane * patch * patch;
      float* target =
          pixels.f32() + ((frame * 3 + channel) * height + ih * patch) * width + iw * patch;
      for (std::int64_t row = 0; row < patch; ++row) {
        std::copy_n(source + row * patch, patch, target + row * width);
      }
    }
  }
}

}  // namespace miniacc::video_vae
