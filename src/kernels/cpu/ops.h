#pragma once

#include <span>

#include "kernels/attention.h"
#include "kernels/attention_int8.h"
#include "kernels/conv1d.h"
#include "kernels/conv3d.h"
#include "kernels/frames.h"
#include "kernels/gelu.h"
#include "kernels/op_context.h"
#include "kernels/rounded.h"

/// CPU implementations; the contracts are those of the ops of the same name, already checked.
namespace miniacc::ops::cpu {

/// Throws InternalError unless every index is in [0, table_rows): a stray one would read foreign
/// memory. Costs one pass over `rows` integers.
void require_rows_in_table(ConstTensorView index, std::int64_t table_rows);

void linear(OpContext& ctx, TensorView out, ConstTensorView x, const WeightMatrix& w,
            ConstTensorView bias);
/// out [m, n] i32 = x [m, k] i8 · weights [n, k]ᵀ i8, exact on every CPU; the int8 path of linear
/// where oneDNN's product may saturate.
void matmul_int8_portable(OpContext& ctx, TensorView out, ConstTensorView x,
                          ConstTensorView weights);
/// `out` is narrowed to the delta's columns.
void add_low_rank(OpContext& ctx, TensorView out, ConstTensorView x,
                  std::span<const LowRankDelta> deltas);
void quantize_rows(OpContext& ctx, TensorView out, TensorView scale, ConstTensorView x);
void rotate_rows(OpContext& ctx, TensorView x, std::int64_t group);
/// The same, by oneDNN where its product is exact; x and weights contiguous.
void matmul_int8(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weights);
void linear_quantized(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView x_scale,
                      const WeightMatrix& w, ConstTensorView bias);
void rotate_quantize_rows(OpContext& ctx, TensorView out, TensorView scale, ConstTensorView x,
                          std::int64_t group);
void modulated_rms_norm_quantize(OpContext& ctx, TensorView out, TensorView scale,
                                 ConstTensorView x, ConstTensorView weight, ConstTensorView shift,
                                 ConstTensorView gain, ConstTensorView index, float eps,
                                 std::int64_t group);
void silu_mul_quantize(OpContext& ctx, TensorView out, TensorView scale, ConstTensorView gate,
                       ConstTensorView value, std::int64_t group);
void quantize_attention(OpContext& ctx, QuantizedAttention& out, ConstTensorView q,
                        ConstTensorView k, ConstTensorView v);
void qk_norm_rope_quantize(OpContext& ctx, QuantizedAttention& out, ConstTensorView q,
                           ConstTensorView k, ConstTensorView v, const QkNormRope& options);
void attention_int8(OpContext& ctx, TensorView out, const QuantizedAttention& in, float scale);
void rms_norm(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight, float eps);
void modulated_rms_norm(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                        ConstTensorView shift, ConstTensorView scale, ConstTensorView index,
                        float eps);
void layer_norm(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                ConstTensorView bias, float eps);
void group_norm_coefficients(OpContext& ctx, TensorView scale, TensorView shift, ConstTensorView x,
                             ConstTensorView weight, ConstTensorView bias, std::int64_t num_groups,
                             float eps);
void copy(OpContext& ctx, TensorView out, ConstTensorView x);
void fill_zero(OpContext& ctx, TensorView x);
void divide(OpContext& ctx, TensorView x, float divisor);
bool all_finite(OpContext& ctx, ConstTensorView x);
void add(OpContext& ctx, TensorView h, ConstTensorView x);
void gated_add(OpContext& ctx, TensorView h, ConstTensorView x, ConstTensorView gate,
               ConstTensorView index);
void silu_mul(OpContext& ctx, TensorView out, ConstTensorView gate, ConstTensorView value);
void silu(OpContext& ctx, TensorView out, ConstTensorView x);
void gelu(OpContext& ctx, TensorView out, ConstTensorView x, GeluForm form);
void apply_rope(OpContext& ctx, TensorView x, ConstTensorView cos, ConstTensorView sin);
void attention(OpContext& ctx, TensorView out, ConstTensorView q, ConstTensorView k,
               ConstTensorView v, const AttentionOptions& options);
void conv1d(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
            ConstTensorView bias, const Conv1dOptions& options);
void conv_transpose1d(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                      ConstTensorView bias, const Conv1dOptions& options);
void conv3d(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
            ConstTensorView bias, const Conv3dOptions& options);
void snake(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView alpha);
void antialiased_snake_beta(OpContext& ctx, TensorView out, ConstTensorView x,
                            ConstTensorView alpha, ConstTensorView beta, ConstTensorView up_filter,
                            ConstTensorView down_filter);
void rms_norm_rounded(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                      float eps);
void silu_mul_rounded(OpContext& ctx, TensorView out, ConstTensorView gate, ConstTensorView value);
void split_rows(OpContext& ctx, TensorView out, ConstTensorView x, SplitSide side);
void linear_rounded(OpContext& ctx, TensorView out, ConstTensorView x, const WeightMatrix& w,
                    ConstTensorView bias);
void add_patches(OpContext& ctx, TensorView canvas, ConstTensorView values,
                 const PatchPlacement& place);
void cross_fade(OpContext& ctx, TensorView head, ConstTensorView previous);
void scale_to_unit(OpContext& ctx, TensorView pixels, const ChannelScale& scale);
void to_rgb8(OpContext& ctx, TensorView rgb, ConstTensorView pixels);

}  // namespace miniacc::ops::cpu
