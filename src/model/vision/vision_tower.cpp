#include "model/vision/vision_tower.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "kernels/attention.h"
#include "kernels/copy.h"
#include "kernels/gelu.h"
#include "kernels/norm.h"
#include "kernels/residual.h"
#include "kernels/rope.h"
#include "model/common/finite.h"
#include "model/common/row_chunks.h"
#include "model/vision/patches.h"
#include "model/vision/vision_positions.h"
#include "model/vision/vision_weights.h"

namespace miniacc {
namespace {

using vision::BlockWeights;
using vision::LinearWeights;
using vision::MergerWeights;
using vision::NormWeights;
using vision::PatchEmbedWeights;

constexpr std::int64_t kMergeArea = 4;

/// Patch rows [first, first + out rows) of one grid, into host memory.
using WriteRows = std::function<void(std::int64_t first, TensorView out)>;

/// One grid on its way through the blocks.
struct Stream {
  VisionGrid grid;
  Tensor x;         ///< [P, hidden] residual stream
  VisionRope rope;  ///< on the device
  VisionFeatures features;
};

/// Activations of one block, used by every block and every grid: views of the first rows.
struct Activations {
  Activations(Device& device, const VisionConfig& config, std::int64_t rows)
      : qkv(empty_tensor(device, {rows, 3 * config.num_heads, config.head_dim})),
        attention(empty_tensor(device, {rows, config.num_heads, config.head_dim})),
        branch(empty_tensor(device, {std::min(rows, kRowChunk), config.hidden_size})),
        inner(empty_tensor(device, {std::min(rows, kRowChunk), config.ffn_hidden_size})) {}

  Tensor qkv;        ///< [P, 3 · heads, d]
  Tensor attention;  ///< [P, heads, d]
  Tensor branch;     ///< [chunk, hidden] normalised input of a branch, then its output
  Tensor inner;      ///< [chunk, ffn]
};

void linear(OpContext& ctx, TensorView out, ConstTensorView x, const LinearWeights& weights) {
  ops::linear(ctx, out, x, weights.weight.view(), weights.bias.view());
}

void layer_norm(OpContext& ctx, TensorView out, ConstTensorView x, const NormWeights& weights,
                const VisionConfig& config) {
  ops::layer_norm(ctx, out, x, weights.weight.view(), weights.bias.view(), config.layer_norm_eps);
}

/// x += the positions, which the host interpolates.
void add_positions(OpContext& ctx, TensorView x, ConstTensorView table, const VisionGrid& grid) {
  const Placed host_table = on_host(ctx, table);
  if (x.device.kind == DeviceKind::kCpu) {
    add_vision_positions(x, host_table.view, grid);
    return;
  }
  Tensor positions = empty_tensor(ctx.host_device(), x.shape);
  std::ranges::fill(positions.f32(), 0.0F);
  add_vision_positions(positions.view(), host_table.view, grid);
  const Placed placed = on_device(ctx, positions.view());
  ops::add(ctx, x, placed.view);
}

VisionRope rope_on_device(OpContext& ctx, const VisionGrid& grid, std::int64_t head_dim) {
  VisionRope rope = make_vision_rope(ctx.host_device(), grid, head_dim);
  return {to_device(ctx, std::move(rope.cos)), to_device(ctx, std::move(rope.sin))};
}

/// x = patch_embed(rows) + positions.
Tensor embed(OpContext& ctx, const VisionConfig& config, const PatchEmbedWeights& weights,
             const VisionGrid& grid, const WriteRows& write_rows) {
  const std::int64_t patches = grid.num_patches();
  Tensor x = empty_tensor(ctx.device, {patches, config.hidden_size});
  Tensor rows = empty_tensor(ctx.host_device(), {std::min(patches, kRowChunk), kPatchRowSize});
  for_row_chunks(patches, [&](std::int64_t first, std::int64_t count) {
    ctx.check_cancelled();
    const TensorView chunk = rows.view().narrow(0, 0, count);
    write_rows(first, chunk);
    const Placed placed = on_device(ctx, chunk);
    ops::linear(ctx, x.view().narrow(0, first, count), placed.view, weights.matrix(),
                weights.proj.bias.view());
  });
  add_positions(ctx, x.view(), weights.pos_embed.view(), grid);
  return x;
}

/// attention = softmax(rope(q)·rope(k)ᵀ / √d)·v within the grid, q, k, v of the normalised rows.
void self_attention(OpContext& ctx, ConstTensorView x, const VisionRope& rope,
                    const VisionConfig& config, const BlockWeights& weights, Precision precision,
                    Activations& activations) {
  const std::int64_t patches = x.dim(0);
  const std::int64_t heads = config.num_heads;
  const TensorView qkv = activations.qkv.view().narrow(0, 0, patches);
  const TensorView qkv_rows = qkv.reshape({patches, 3 * config.hidden_size});
  for_row_chunks(patches, [&](std::int64_t first, std::int64_t count) {
    ctx.check_cancelled();
    const TensorView normalised = activations.branch.view().narrow(0, 0, count);
    layer_norm(ctx, normalised, x.narrow(0, first, count), weights.norm1, config);
    linear(ctx, qkv_rows.narrow(0, first, count), normalised, weights.qkv);
  });
  const TensorView q = qkv.narrow(1, 0, heads);
  const TensorView k = qkv.narrow(1, heads, heads);
  const TensorView v = qkv.narrow(1, 2 * heads, heads);
  ops::apply_rope(ctx, q, rope.cos.view(), rope.sin.view());
  ops::apply_rope(ctx, k, rope.cos.view(), rope.sin.view());
  const ops::AttentionOptions options = {
      .scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim)),
      .mask = ops::AttentionMask::kNone,
      .precision = precision};
  ops::attention(ctx, activations.attention.view().narrow(0, 0, patches), q, k, v, options);
}

/// x += proj(attention(norm1(x))); x += fc2(gelu(fc1(norm2(x)))).
void run_block(OpContext& ctx, TensorView x, const VisionRope& rope, const VisionConfig& config,
               const BlockWeights& weights, Precision precision, Activations& activations) {
  const std::int64_t patches = x.dim(0);
  self_attention(ctx, x, rope, config, weights, precision, activations);
  const TensorView attention =
      activations.attention.view().narrow(0, 0, patches).reshape({patches, config.hidden_size});
  for_row_chunks(patches, [&](std::int64_t first, std::int64_t count) {
    ctx.check_cancelled();
    const TensorView rows = x.narrow(0, first, count);
    const TensorView branch = activations.branch.view().narrow(0, 0, count);
    const TensorView inner = activations.inner.view().narrow(0, 0, count);
    linear(ctx, branch, attention.narrow(0, first, count), weights.proj);
    ops::add(ctx, rows, branch);

    layer_norm(ctx, branch, rows, weights.norm2, config);
    linear(ctx, inner, branch, weights.linear_fc1);
    ops::gelu(ctx, inner, inner, ops::GeluForm::kTanh);
    linear(ctx, branch, inner, weights.linear_fc2);
    ops::add(ctx, rows, branch);
  });
}

/// Which rows the norm of a merger sees.
enum class MergerNorm { kPatch, kFourPatches };

/// [tokens, out]: four consecutive rows of x side by side through fc1, gelu and fc2, normalised
/// before they are put together (merger) or after (DeepStack).
Tensor merge(OpContext& ctx, ConstTensorView x, const VisionConfig& config,
             const MergerWeights& weights, MergerNorm norm) {
  const std::int64_t tokens = x.dim(0) / kMergeArea;
  const std::int64_t merged = kMergeArea * config.hidden_size;
  const std::int64_t chunk = std::min(tokens, kRowChunk);
  Tensor out = empty_tensor(ctx.device, {tokens, config.out_size});
  Tensor normalised = empty_tensor(ctx.device, {chunk, merged});
  Tensor inner = empty_tensor(ctx.device, {chunk, merged});
  for_row_chunks(tokens, [&](std::int64_t first, std::int64_t count) {
    ctx.check_cancelled();
    const ConstTensorView patches = x.narrow(0, kMergeArea * first, kMergeArea * count);
    const TensorView rows = normalised.view().narrow(0, 0, count);
    const TensorView hidden = inner.view().narrow(0, 0, count);
    if (norm == MergerNorm::kPatch) {
      layer_norm(ctx, rows.reshape(patches.shape), patches, weights.norm, config);
    } else {
      layer_norm(ctx, rows, patches.reshape({count, merged}), weights.norm, config);
    }
    linear(ctx, hidden, rows, weights.linear_fc1);
    ops::gelu(ctx, hidden, hidden, ops::GeluForm::kExact);
    linear(ctx, out.view().narrow(0, first, count), hidden, weights.linear_fc2);
  });
  return out;
}

Status check_finite(OpContext& ctx, ConstTensorView values, const std::string& where) {
  if (!all_finite(ctx, values)) {
    return fail(
        ErrorCode::kInternal,
        fmt::format("non-finite picture: NaN or infinity in the vision tower after {}", where));
  }
  return {};
}

/// Index of the merger behind this block, or -1.
std::int64_t merger_behind(const VisionConfig& config, std::int64_t block) {
  const auto found = std::ranges::find(config.deepstack_blocks, block);
  return found == config.deepstack_blocks.end() ? -1 : found - config.deepstack_blocks.begin();
}

Status run_blocks(OpContext& ctx, WeightSource& weights, const VisionConfig& config,
                  std::span<Stream> streams, Precision precision, const LayerProgress& progress) {
  std::int64_t most_patches = 0;
  for (const Stream& stream : streams) {
    most_patches = std::max(most_patches, stream.grid.num_patches());
  }
  Activations activations(ctx.device, config, most_patches);
  for (std::int64_t b = 0; b < config.num_blocks; ++b) {
    ctx.check_cancelled();
    {
      MINIACC_ASSIGN(const BlockWeights block,
                     vision::load_block(weights, b, precision, ctx.device));
      for (Stream& stream : streams) {
        run_block(ctx, stream.x.view(), stream.rope, config, block, precision, activations);
        MINIACC_RETURN_IF_ERROR(check_finite(ctx, stream.x.view(),
                                             fmt::format("block {} of {}", b, config.num_blocks)));
      }
    }
    if (const std::int64_t j = merger_behind(config, b); j >= 0) {
      const std::string stem = fmt::format("visual.deepstack_merger_list.{}.", j);
      MINIACC_ASSIGN(const MergerWeights merger,
                     vision::load_merger(weights, stem, precision, ctx.device));
      for (Stream& stream : streams) {
        stream.features.deepstack.push_back(
            merge(ctx, stream.x.view(), config, merger, MergerNorm::kFourPatches));
        MINIACC_RETURN_IF_ERROR(check_finite(ctx, stream.features.deepstack.back().view(),
                                             fmt::format("DeepStack merger {}", j)));
      }
    }
    if (progress) {
      progress(b + 1, config.num_blocks);
    }
  }
  return {};
}

struct GridSource {
  VisionGrid grid;
  WriteRows write_rows;
};

Result<std::vector<VisionFeatures>> run(OpContext& ctx, WeightSource& weights,
                                        const VisionConfig& config,
                                        std::span<const GridSource> sources, Precision precision,
                                        const LayerProgress& progress) {
  if (precision == Precision::kInt8) {
    precision = Precision::kBF16;
  }
  std::vector<Stream> streams;
  {
    MINIACC_ASSIGN(const PatchEmbedWeights patch_embed,
                   vision::load_patch_embed(weights, precision, ctx.device));
    for (const GridSource& source : sources) {
      streams.push_back({.grid = source.grid,
                         .x = embed(ctx, config, patch_embed, source.grid, source.write_rows),
                         .rope = rope_on_device(ctx, source.grid, config.head_dim),
                         .features = {}});
    }
  }
  if (streams.empty()) {
    return std::vector<VisionFeatures>{};
  }
  MINIACC_RETURN_IF_ERROR(run_blocks(ctx, weights, config, streams, precision, progress));
  MINIACC_ASSIGN(const MergerWeights merger,
                 vision::load_merger(weights, "visual.merger.", precision, ctx.device));
  std::vector<VisionFeatures> features;
  for (Stream& stream : streams) {
    stream.features.merged = merge(ctx, stream.x.view(), config, merger, MergerNorm::kPatch);
    MINIACC_RETURN_IF_ERROR(check_finite(ctx, stream.features.merged.view(), "the merger"));
    features.push_back(std::move(stream.features));
  }
  return features;
}

}  // namespace

Result<std::vector<VisionFeatures>> run_vision_tower(OpContext& ctx, WeightSource& weights,
                                                     const VisionConfig& config,
                                                     std::span<const VisionInput> inputs,
                                                     Precision precision,
                                                     const LayerProgress& progress) {
  std::vector<GridSource> sources;
  for (const VisionInput& input : inputs) {
    MINIACC_REQUIRE(!input.frames.empty(), "vision tower: an input is one picture or two frames");
    sources.push_back({.grid = grid_of(input.frames[0]),
                       .write_rows = [frames = input.frames](std::int64_t first, TensorView out) {
                         write_patch_rows(frames, first, out);
                       }});
  }
  return run(ctx, weights, config, sources, precision, progress);
}

Result<VisionFeatures> run_vision_tower(OpContext& ctx, WeightSource& weights,
                                        const VisionConfig& config, ConstTensorView patch_rows,
                                        const VisionGrid& grid, Precision precision,
                                        const LayerProgress& progress) {
  MINIACC_REQUIRE(grid.height > 0 && grid.width > 0 && grid.height % 2 == 0 && grid.width % 2 == 0,
                  "vision tower: both sides of a grid are even");
  MINIACC_REQUIRE(
      patch_rows.shape == Shape({grid.num_patches(), kPatchRowSize}) && patch_rows.is_contiguous(),
      "vision tower: patch rows are [patches, 1536]");
  const GridSource source = {.grid = grid, .write_rows = [&](std::int64_t first, TensorView out) {
                               const float* rows = patch_rows.f32() + first * kPatchRowSize;
                               std::copy_n(rows, out.num_elements(), out.f32());
                             }};
  MINIACC_ASSIGN(std::vector<VisionFeatures> features,
                 run(ctx, weights, config, {&source, 1}, precision, progress));
  return std::move(features.front());
}

}  // namespace miniacc
