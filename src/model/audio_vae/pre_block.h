#pragma once

#include "kernels/op_context.h"
#include "model/audio_vae/audio_encoder_weights.h"

namespace miniacc::audio_vae {

/// Averages the heads and then every head_dim / C neighbouring channels.
///   out [rows, C] · attended [rows, heads, head_dim], head_dim a multiple of C; f32, contiguous,
///   in host memory
/// Source: spec vae.md §5.3.
void pool_heads(TensorView out, ConstTensorView attended);

/// out = gelu(gate) · value with the tanh form of GELU. All [rows, n] f32, contiguous, in host
/// memory; out may alias. Source: spec vae.md §5.3; Hendrycks & Gimpel 2016.
void geglu(TensorView out, ConstTensorView gate, ConstTensorView value);

/// The causal attention that narrows the trunk: [rows, D] normalised by norm1 to [rows, C].
Tensor attend(OpContext& ctx, ConstTensorView normed, const PreBlock& block,
              const AudioEncoderConfig& config);

/// The trunk's rows [rows, D], one a latent, to [rows, C]: the attention projection, before the
/// head of the mean. Row n sees rows 0 to n. Source: spec vae.md §5.3.
Tensor run_pre_block(OpContext& ctx, ConstTensorView trunk, const PreBlock& block,
                     const AudioEncoderConfig& config);

}  // namespace miniacc::audio_vae
