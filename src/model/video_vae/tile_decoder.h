#pragma once

#include <cstdint>
#include <vector>

#include "kernels/op_context.h"
#include "model/video_vae/rope_table.h"
#include "model/video_vae/video_vae_weights.h"

namespace miniacc::video_vae {

/// Memory that decoding needs besides hidden states, for as many tiles as pass a product together;
/// one set serves all tiles in turn. N = tokens of a tile with suffix, D = hidden_size,
/// F = ffn_hidden_size.
class TileWorkspace {
 public:
  TileWorkspace(OpContext& ctx, const VideoVaeConfig& config, const TileShape& tile,
                std::int64_t num_tiles = 1);
  static std::size_t size_bytes(const VideoVaeConfig& config, const TileShape& tile,
                                std::int64_t num_tiles = 1);

  /// [rows, columns] views of the same memory each, f32 if not said otherwise. For one tile in f32
  /// `wide` holds [N, max(3D, 2F)] or [tokens, values_per_token], `narrow` [N, max(2D, F)],
  /// `normed` and `branch` [N, D].
  TensorView wide(std::int64_t rows, std::int64_t columns);
  TensorView narrow(std::int64_t rows, std::int64_t columns, DType dtype = DType::kF32);
  TensorView normed(std::int64_t rows, std::int64_t columns, DType dtype = DType::kF32);
  TensorView branch(std::int64_t rows, std::int64_t columns);

  /// What int8 producers read and write beside the rows: scales [rows] f32, a modulation that
  /// leaves the norm as it is ([1, D] zeros) and its index ([rows] zeros).
  TensorView row_scale(std::int64_t rows) { return row_scale_.view().narrow(0, 0, rows); }
  ConstTensorView no_modulation() { return no_modulation_.view(); }
  ConstTensorView first_entry(std::int64_t rows) { return first_entry_.view().narrow(0, 0, rows); }

 private:
  Tensor wide_;
  Tensor narrow_;
  Tensor normed_;
  Tensor branch_;
  Tensor row_scale_;
  Tensor no_modulation_;
  Tensor first_entry_;
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

/// One transformer block in place on the hidden states h [tiles·N, D] of tiles of one shape:
/// products see all rows at once, attention stays within a tile. The values of a tile do not depend
/// on the tiles beside it. Source: spec vae.md §2.3.
void run_block(OpContext& ctx, TensorView h, const Block& block, const RopeTable& rope,
               const VideoVaeConfig& config, Precision precision, TileWorkspace& workspace);

/// proj_out for bf16 units with f32's digits, see ops::split_rows: [values_per_token, 3D] bf16.
Tensor split_projection(OpContext& ctx, const Shell& shell);

/// Hidden states of finished tiles to proj_out's values of the patch tokens.
///   h      [tiles, N, D] f32
///   split  what split_projection gave, or empty: the product is f32's
/// Returns [tiles·tokens, values_per_token] f32 in the workspace, valid until its next use.
TensorView project_tiles(OpContext& ctx, ConstTensorView h, const Shell& shell,
                         ConstTensorView split, const VideoVaeConfig& config,
                         TileWorkspace& workspace);

/// Where the frames of a window's latents go among the shown ones, -1 where they are dropped:
/// [t·temporal_patch] i32 on ctx.device. Source: spec vae.md §2.6.
Tensor shown_frames(OpContext& ctx, const TileShape& tile, const VideoVaeConfig& config);

}  // namespace miniacc::video_vae
