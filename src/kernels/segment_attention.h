#pragma once

#include <cstdint>

#include "kernels/op_context.h"

namespace miniacc::ops {

/// How rows attend that come in segments of one length and see those of their segment alone.
struct SegmentAttention {
  std::int64_t segment_rows = 0;
  float norm_eps = 0.0F;     ///< of the norm of q and k
  ConstTensorView cos = {};  ///< [segment_rows, n] f32 as in apply_rope, the same for all segments
  ConstTensorView sin = {};
  float scale = 1.0F;
  Precision precision = Precision::kF32;  ///< as in AttentionOptions, kF32 or kBF16
};

/// out = attention(rope(rms_norm(q)), rope(rms_norm(k)), v) within each segment: what a block of a
/// tiled decoder does with its q, k and v, for many tiles at once. The norms are per head and have
/// no weight; nothing is masked. Equals the ops it names, called segment by segment, which the CPU
/// does; on CUDA in bf16 the norm, the embedding and the rounding are one pass.
///   q, k    [rows, heads, head_dim] f32, rows whole segments; rows may be strided. Their values
///   are
///           lost
///   v, out  the same; out must not alias the others
void segment_attention(OpContext& ctx, TensorView out, TensorView q, TensorView k,
                       ConstTensorView v, const SegmentAttention& options);

}  // namespace miniacc::ops
