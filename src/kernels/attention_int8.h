#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/attention.h"
#include "kernels/op_context.h"

/// Attention with 8-bit q·k, the form of SageAttention 2 (Zhang et al. 2024) with the
/// rotation of spec acceleration_full.md §4.3, in two steps, so that the wide q, k and v can be
/// given back between them and the first can be fused with what stands before it.
///
///   k'  = k - mean over all keys of k, per kv head and channel: shifts every score of a query by
///         the same amount, so the softmax stays what it was, and takes away what the keys share
///   q'' = q·S·H, k'' = k'·S·H: S flips the signs of fixed channels, H is the Walsh-Hadamard matrix
///         of size dim over sqrt(dim). Orthogonal, so q''·k'' = q·k', and a channel with outliers
///         is spread over all
///   s   = scale · (q8 · k8) · q_scale · k_scale: the product exact in i32, q8 and k8 codes of
///         q'' and k''
///   p   = f16(2^14 · exp(s - max of the row)), v16 = f16(v / v_scale)
///   out = Σ p · v16 · v_scale / Σ p, the sums in f32, the denominator of unrounded p
///
/// Scales, each the peak of its values over 127 as in quantize_rows: q one a query and head; k one
/// for the 16 keys of a tile of 64 whose number has the same (key mod 8) / 2, which is what one
/// lane of a matrix instruction holds, 4 a tile; v one a kv head and channel, its peak itself. NaN
/// or infinity in q makes its row NaN, in k all rows, in v its channel.
///
/// The above is AttentionForm::kMmaSync. kWgmma, for the tensor cores of compute capability 9.0:
/// dim is always 128; smoothing, rotation, q, k and their scales are the same; the rest, for tiles
/// of 128 keys counted from the first:
///
///   t    = largest s of the tile, m = largest s of all keys, per query
///   p8   = e4m3(448 · exp(s - t)), v8 = e4m3(v / v_scale), v_scale the channel's peak over 448
///   out  = Σ over tiles exp(t - m) · (Σ in the tile p8 · v8) · v_scale / Σ 448 · exp(s - m)
///
/// so that a tile of small numerators keeps all bits of e4m3. The inner sum is the tensor core's,
/// the others are f32; the denominator is of unrounded numerators.
namespace miniacc::ops {

/// Channel c changes its sign where bit c % 64 of the word for its half is set: digits of pi.
inline constexpr std::uint64_t kChannelSignsLow = 0x243F6A8885A308D3;   // channels 0 to 63
inline constexpr std::uint64_t kChannelSignsHigh = 0x13198A2E03707344;  // channels 64 to 127

/// "int8 mma.sync", "int8 wgmma": for reports.
[[nodiscard]] std::string_view attention_form_name(AttentionForm form);

/// The faster form that the device has: kWgmma on compute capability 9.0 for head_dim above 64,
/// if this build has code for that; kMmaSync otherwise and on the CPU.
[[nodiscard]] AttentionForm best_attention_form(DeviceId device, std::int64_t head_dim);

/// What the second step reads. dim: the smallest of 32, 64 and 128 that holds head_dim; channels
/// from head_dim on are zeros.
///
/// kWgmma: q has its rows padded to a multiple of 64, k and v theirs to whole tiles of 128, all
/// with zeros. In every row of q and k the 16 bytes number c are at c ^ (row % 8), as the tensor
/// cores read them from shared memory, and v is [kv_heads, tiles, dim, 128] e4m3: a row is a
/// channel, its 16 bytes number c (keys 16c to 16c + 15 of the tile) are at c ^ (channel % 8), and
/// in them the keys have the order 0 1 8 9 2 3 10 11 4 5 12 13 6 7 14 15, in which the scores of a
/// lane are the operand of the second product.
struct QuantizedAttention {
  AttentionForm form = AttentionForm::kMmaSync;
  Tensor q;        ///< [heads, q_rows, dim] i8
  Tensor q_scale;  ///< [heads, q_rows] f32
  Tensor k;        ///< [kv_heads, kv_rows, dim] i8
  Tensor k_scale;  ///< [kv_heads, ceil(kv_rows / 64), 4] f32
  Tensor v;        ///< [kv_heads, kv_rows, dim] f16
  Tensor v_scale;  ///< [kv_heads, dim] f32
  std::int64_t q_rows = 0;
  std::int64_t kv_rows = 0;
  std::int64_t head_dim = 0;
  DeviceId device = {};  ///< where all of them live

  [[nodiscard]] std::size_t size_bytes() const {
    return q.size_bytes() + q_scale.size_bytes() + k.size_bytes() + k_scale.size_bytes() +
           v.size_bytes() + v_scale.size_bytes();
  }
};

/// Room for q [q_rows, heads, head_dim], k and v [kv_rows, kv_heads, head_dim]. Throws
/// InternalError where head_dim > 128. Without a form: best_attention_form.
[[nodiscard]] QuantizedAttention empty_quantized_attention(
    Device& device, std::int64_t q_rows, std::int64_t heads, std::int64_t kv_rows,
    std::int64_t kv_heads, std::int64_t head_dim, std::optional<AttentionForm> form = std::nullopt);

/// size_bytes() of such an object, each buffer rounded up as CUDA does it.
[[nodiscard]] std::size_t quantized_attention_bytes(std::int64_t q_rows, std::int64_t heads,
                                                    std::int64_t kv_rows, std::int64_t kv_heads,
                                                    std::int64_t head_dim);

/// size_bytes() of such an object, each buffer rounded up as CUDA does it.
[[nodiscard]] std::size_t quantized_attention_bytes(std::int64_t q_rows, std::int64_t heads,
                                                    std::int64_t kv_rows, std::int64_t kv_heads,
                                                    std::int64_t head_dim);

/// Step one. q, k, v as in attention(): f32, rows may be strided. `out` was made for these sizes.
void quantize_attention(OpContext& ctx, QuantizedAttention& out, ConstTensorView q,
                        ConstTensorView k, ConstTensorView v);

/// What a block does to q and k before attention: rms_norm per head, then rotary embedding.
struct QkNormRope {
  ConstTensorView q_norm;  ///< [head_dim] f32
  ConstTensorView k_norm;  ///< [head_dim] f32
  float eps = 0.0F;
  ConstTensorView cos = {};  ///< [rows, n] f32 as in apply_rope, or empty: no rotary embedding
  ConstTensorView sin = {};
};

/// Step one fused: quantize_attention(rope(rms_norm(q)), rope(rms_norm(k)), v), which the CPU
/// computes with just these ops, on copies. q, k and v stay as they are. Where there is a rotary
/// embedding, q and k have as many rows as its tables.
void qk_norm_rope_quantize(OpContext& ctx, QuantizedAttention& out, ConstTensorView q,
                           ConstTensorView k, ConstTensorView v, const QkNormRope& options);

/// Step two, in.form. out [q_rows, heads, head_dim] f32, rows may be strided; no mask. scale > 0.
void attention_int8(OpContext& ctx, TensorView out, const QuantizedAttention& in, float scale);

}  // namespace miniacc::ops
