#pragma once

#include "kernels/op_context.h"

namespace miniacc::ops {

/// out = x + sin(alpha·x)² / (alpha + 1e-9), alpha as it is (no logarithm) and without
/// anti-aliasing: the activation of the audio encoder.
///   x, out  [batch, channels, length] f32, contiguous; may alias · alpha [channels] f32
/// Source: Ziyin et al. 2020, spec vae.md §5.2.
void snake(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView alpha);

/// Anti-aliased SnakeBeta: upsample by 2 with `up_filter`, then
/// y = x + sin(exp(alpha)·x)² / (exp(beta) + 1e-9), then downsample by 2 with `down_filter`; edges
/// are padded by replication, so the length stays.
///   x, out                  [batch, channels, length] f32, contiguous; must not alias
///   alpha, beta             [channels] f32, logarithms
///   up_filter, down_filter  [12] f32
/// Source: Lee et al. 2023 (BigVGAN), spec vae.md §4.3.
void antialiased_snake_beta(OpContext& ctx, TensorView out, ConstTensorView x,
                            ConstTensorView alpha, ConstTensorView beta, ConstTensorView up_filter,
                            ConstTensorView down_filter);

}  // namespace miniacc::ops
