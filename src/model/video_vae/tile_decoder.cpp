#include "model/video_vae/tile_decoder.h"

#include <algorithm>
#include <cmath>

#include "kernels/activation.h"
#include "kernels/copy.h"
#include "kernels/fused.h"
#include "kernels/linear.h"
#include "kernels/norm.h"
#include "kernels/residual.h"
#include "kernels/rounded.h"
#include "kernels/segment_attention.h"

namespace miniacc::video_vae {
namespace {

struct WorkspaceSizes {
  std::int64_t rows = 0;
  std::int64_t wide = 0;
  std::int64_t narrow = 0;
  std::int64_t hidden = 0;
};

WorkspaceSizes workspace_sizes(const VideoVaeConfig& config, const TileShape& tile,
                               std::int64_t num_tiles) {
  const std::int64_t rows = num_tiles * (tile.num_tokens() + config.num_suffix_tokens());
  return {.rows = rows,
          .wide = rows * std::max({3 * config.hidden_size, 2 * config.ffn_hidden_size,
                                   config.values_per_token()}),
          .narrow = rows * std::max(2 * config.hidden_size, config.ffn_hidden_size),
          .hidden = rows * config.hidden_size};
}

TensorView part_of(Tensor& storage, std::int64_t rows, std::int64_t columns, DType dtype) {
  const auto bytes = storage_bytes(dtype, rows * columns);
  MINIACC_REQUIRE(bytes && *bytes <= storage.size_bytes(), "workspace: too small");
  TensorView view = storage.view();
  return {view.data, Shape({rows, columns}), dtype, view.device};
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

/// out = rms_norm(h) · Wᵀ + bias, the norm's result rounded or quantised as the matrix takes it.
void norm_linear(OpContext& ctx, TensorView out, ConstTensorView h, ConstTensorView norm,
                 const WeightMatrix& w, ConstTensorView bias, float eps, TileWorkspace& workspace) {
  const std::int64_t rows = h.dim(0);
  const TensorView normed = workspace.normed(rows, h.dim(1), w.values.dtype);
  switch (w.values.dtype) {
    case DType::kI8: {
      const TensorView scale = workspace.row_scale(rows);
      ops::modulated_rms_norm_quantize(ctx, normed, scale, h, norm, workspace.no_modulation(),
                                       workspace.no_modulation(), workspace.first_entry(rows), eps,
                                       w.rotation_group);
      ops::linear_quantized(ctx, out, normed, scale, w, bias);
      return;
    }
    case DType::kBF16:
      ops::rms_norm_rounded(ctx, normed, h, norm, eps);
      ops::linear_rounded(ctx, out, normed, w, bias);
      return;
    default:
      ops::rms_norm(ctx, normed, h, norm, eps);
      ops::linear(ctx, out, normed, w, bias);
  }
}

/// out = silu_mul(gate, value) · Wᵀ + bias, likewise.
void silu_linear(OpContext& ctx, TensorView out, ConstTensorView gate, ConstTensorView value,
                 const WeightMatrix& w, ConstTensorView bias, TileWorkspace& workspace) {
  const std::int64_t rows = gate.dim(0);
  const TensorView activated = workspace.narrow(rows, gate.dim(1), w.values.dtype);
  switch (w.values.dtype) {
    case DType::kI8: {
      const TensorView scale = workspace.row_scale(rows);
      ops::silu_mul_quantize(ctx, activated, scale, gate, value, w.rotation_group);
      ops::linear_quantized(ctx, out, activated, scale, w, bias);
      return;
    }
    case DType::kBF16:
      ops::silu_mul_rounded(ctx, activated, gate, value);
      ops::linear_rounded(ctx, out, activated, w, bias);
      return;
    default:
      ops::silu_mul(ctx, activated, gate, value);
      ops::linear(ctx, out, activated, w, bias);
  }
}

}  // namespace

TileWorkspace::TileWorkspace(OpContext& ctx, const VideoVaeConfig& config, const TileShape& tile,
                             std::int64_t num_tiles) {
  const WorkspaceSizes sizes = workspace_sizes(config, tile, num_tiles);
  wide_ = empty_tensor(ctx.device, {sizes.wide});
  narrow_ = empty_tensor(ctx.device, {sizes.narrow});
  normed_ = empty_tensor(ctx.device, {sizes.hidden});
  branch_ = empty_tensor(ctx.device, {sizes.hidden});
  row_scale_ = empty_tensor(ctx.device, {sizes.rows});
  no_modulation_ = empty_tensor(ctx.device, {1, config.hidden_size});
  first_entry_ = empty_tensor(ctx.device, {sizes.rows}, DType::kI32);
  ops::fill_zero(ctx, no_modulation_.view());
  ops::fill_zero(ctx, first_entry_.view());
}

std::size_t TileWorkspace::size_bytes(const VideoVaeConfig& config, const TileShape& tile,
                                      std::int64_t num_tiles) {
  const WorkspaceSizes sizes = workspace_sizes(config, tile, num_tiles);
  return sizeof(float) * static_cast<std::size_t>(sizes.wide + sizes.narrow + 2 * sizes.hidden +
                                                  2 * sizes.rows + config.hidden_size);
}

TensorView TileWorkspace::wide(std::int64_t rows, std::int64_t columns) {
  return part_of(wide_, rows, columns, DType::kF32);
}
TensorView TileWorkspace::narrow(std::int64_t rows, std::int64_t columns, DType dtype) {
  return part_of(narrow_, rows, columns, dtype);
}
TensorView TileWorkspace::normed(std::int64_t rows, std::int64_t columns, DType dtype) {
  return part_of(normed_, rows, columns, dtype);
}
TensorView TileWorkspace::branch(std::int64_t rows, std::int64_t columns) {
  return part_of(branch_, rows, columns, DType::kF32);
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
  const TensorView branch = workspace.branch(rows, d);

  const TensorView qkv = workspace.wide(rows, 3 * d);
  norm_linear(ctx, qkv, h, block.norm1, block.to_qkv, block.to_qkv_bias, config.norm_eps,
              workspace);
  const TensorView mixed = workspace.narrow(rows, d);
  const auto heads = [&](TensorView matrix, std::int64_t first) {
    return as_heads(matrix, first, config.num_heads, config.head_dim);
  };
  ops::segment_attention(
      ctx, heads(mixed, 0), heads(qkv, 0), heads(qkv, d), heads(qkv, 2 * d),
      {.segment_rows = rope.cos.shape()[0],
       .norm_eps = config.norm_eps,
       .cos = rope.cos.view(),
       .sin = rope.sin.view(),
       .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim))),
       .precision = precision == Precision::kF32 ? Precision::kF32 : Precision::kBF16});
  ops::linear(ctx, branch, mixed, block.to_out, block.to_out_bias);
  ops::gated_add(ctx, h, branch, block.scale1, {});

  const TensorView gate_up = workspace.wide(rows, 2 * f);
  norm_linear(ctx, gate_up, h, block.norm2, block.w1, block.w1_bias, config.norm_eps, workspace);
  silu_linear(ctx, branch, gate_up.narrow(1, 0, f), gate_up.narrow(1, f, f), block.w2,
              block.w2_bias, workspace);
  ops::gated_add(ctx, h, branch, block.scale2, {});
}

Tensor split_projection(OpContext& ctx, const Shell& shell) {
  const ConstTensorView matrix = shell.proj_out.values.view();
  Tensor split = empty_tensor(ctx.device, {matrix.dim(0), 3 * matrix.dim(1)}, DType::kBF16);
  ops::split_rows(ctx, split.view(), matrix, ops::SplitSide::kMatrix);
  return split;
}

TensorView project_tiles(OpContext& ctx, ConstTensorView h, const Shell& shell,
                         ConstTensorView split, const VideoVaeConfig& config,
                         TileWorkspace& workspace) {
  const std::int64_t tiles = h.dim(0);
  const std::int64_t tokens = h.dim(1) - config.num_suffix_tokens();
  const std::int64_t d = config.hidden_size;
  const TensorView normed = workspace.normed(tiles * tokens, d);
  for (std::int64_t i = 0; i < tiles; ++i) {
    const ConstTensorView tile = h.narrow(0, i, 1).reshape({h.dim(1), d});
    ops::layer_norm(ctx, normed.narrow(0, i * tokens, tokens), tile.narrow(0, 0, tokens),
                    shell.norm_out_weight.view(), shell.norm_out_bias.view(), config.norm_eps);
  }
  const TensorView values = workspace.wide(tiles * tokens, config.values_per_token());
  if (split.empty()) {
    ops::linear(ctx, values, normed, shell.proj_out.view(), shell.proj_out_bias.view());
  } else {
    const TensorView columns = workspace.narrow(tiles * tokens, 3 * d, DType::kBF16);
    ops::split_rows(ctx, columns, normed, ops::SplitSide::kActivation);
    ops::linear_rounded(ctx, values, columns, {.values = split}, shell.proj_out_bias.view());
  }
  return values;
}

Tensor shown_frames(OpContext& ctx, const TileShape& tile, const VideoVaeConfig& config) {
  std::vector<std::int32_t> frames;
  for (std::int64_t frame = 0; frame < tile.t * config.time.temporal_patch; ++frame) {
    frames.push_back(static_cast<std::int32_t>(config.time.kept_index(frame)));
  }
  return upload<std::int32_t>(ctx, frames, {static_cast<std::int64_t>(frames.size())});
}

}  // namespace miniacc::video_vae
