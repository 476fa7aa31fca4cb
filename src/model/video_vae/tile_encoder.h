#pragma once

#include "kernels/op_context.h"
#include "model/video_vae/video_encoder_weights.h"

namespace miniacc::video_vae {

/// x ← the residual block's output; its width may change. x [n, T, h, w, channels] f32, contiguous.
/// Source: spec vae.md §3.4.
void run_encoder_block(OpContext& ctx, Tensor& x, const EncoderBlock& block,
                       const VideoEncoderConfig& config);

/// x ← the output of a level: its blocks, then its strided convolution where it has one.
/// Source: spec vae.md §3.5, §3.6.
void run_encoder_level(OpContext& ctx, Tensor& x, const EncoderLevelWeights& weights,
                       const EncoderLevel& level, const VideoEncoderConfig& config);

/// Pixels of tiles to their moments: the whole encoder and quant_conv. Tiles are independent.
///   pixels  [n, frames, height, width, 3] f32, contiguous, ImageNet-normalised
///   result  [n, T, height / s, width / s, 2·C] f32: means, then log variances; T = frames shrunk
///           by every time stride t to ceil(T / t)
/// At its peak holds two tensors of the first level: 2 x 570 MB for 17 frames of 256 x 256 pixels
/// of the released model. Source: spec vae.md §3.2 to §3.6.
Tensor encode_tiles(OpContext& ctx, ConstTensorView pixels, const EncoderWeights& weights,
                    const VideoEncoderConfig& config);

}  // namespace miniacc::video_vae
