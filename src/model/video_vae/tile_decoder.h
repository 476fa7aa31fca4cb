#pragma once

#include <cstdint>
#include <vector>

#include "kernels/op_context.h"
#include "model/video_vae/rope_table.h"
#include "model/video_vae/video_vae_weights.h"

namespace miniacc::video_vae {

/// Memory that decoding a tile needs besides its hidden state; one set serves all tiles in turn.
/// N = tokens of a tile with suffix, D = hidden_size, F = ffn_hidden_size.
class TileWorkspace {
 public:
  TileWorkspace(const VideoVaeConfig& config, const TileShape& tile, Device& device);
  static std::size_t size_bytes(const VideoVaeConfig& config, const TileShape& tile);

  /// [rows, columns] f32 views of the same memory each: `wide` holds [N, max(3D, 2F)] or
  /// [tokens, values_per_token], `narrow` [N, max(D, F)], `normed` and `branch` [N, D].
  TensorView wide(std::int64_t rows, std::int64_t columns);
  TensorView narrow(std::int64_t rows, std::int64_t columns);
  TensorView normed(std::int64_t rows, std::int64_t columns);
  TensorView branch(std::int64_t rows, std::int64_t columns);

 private:
  Tensor wide_;
  Tensor narrow_;
  Tensor normed_;
  Tensor branch_;
};

/// Where a tile starts in a clip, in latents.
struct TileOrigin {
  std::int64_t t = 0;
  std::int64_t h = 0;
  std::int64_t w = 0;
};

/// Cuts a tile out of a clip's latents and maps it to the VAE's space: z · std[c] + mean[c].
///   tokens   [tokens, C] f32, order t, h, w
///   latents  [C, T, h, w] f32, contiguous, diffusion-normalised; steps past T repeat the last one
void gather_tokens(TensorView tokens, ConstTensorView latents,
                   const vae::LatentStatistics& statistics, const TileOrigin& origin,
                   const TileShape& tile);

/// Tokens of a tile to its hidden state before the first block.
///   h        [N, D] f32: patch tokens, registers, one row of zeros
///   latents  [tokens, C] f32, denormalised, order t, h, w
void embed_tile(OpContext& ctx, TensorView h, ConstTensorView latents, const Shell& shell,
                TileWorkspace& workspace);

/// One transformer block in place on a tile's hidden state h [N, D]. Source: spec vae.md §2.3.
void run_block(OpContext& ctx, TensorView h, const Block& block, const RopeTable& rope,
               const VideoVaeConfig& config, Precision precision, TileWorkspace& workspace);

/// Hidden state of a finished tile to proj_out's values of the patch tokens.
/// Returns [tokens, values_per_token] f32 in the workspace, valid until its next use.
TensorView project_tile(OpContext& ctx, ConstTensorView h, const Shell& shell,
                        const VideoVaeConfig& config, TileWorkspace& workspace);

/// Unpatchifies and drops the frames of a window that are not shown.
///   pixels  [kept_frames, 3, h·patch, w·patch] f32, ImageNet-normalised
///   values  [tokens, values_per_token] f32, a token ordered [3, temporal_patch, patch, patch]
void unpatchify(TensorView pixels, ConstTensorView values, const TileShape& tile,
                const VideoVaeConfig& config);

}  // namespace miniacc::video_vae
