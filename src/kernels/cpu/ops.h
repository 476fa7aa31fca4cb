#pragma once

#include "kernels/attention.h"
#include "kernels/conv1d.h"
#include "kernels/conv3d.h"
#include "kernels/gelu.h"
#include "kernels/op_context.h"

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
void quantize_rows(OpContext& ctx, TensorView out, TensorView scale, ConstTensorView x);
void rotate_rows(OpContext& ctx, TensorView x, std::int64_t group);
void rms_norm(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight, float eps);
void modulated_rms_norm(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                        ConstTensorView shift, ConstTensorView scale, ConstTensorView index,
                        float eps);
void layer_norm(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                ConstTensorView bias, float eps);
void group_norm_coefficients(OpContext& ctx, TensorView scale, TensorView shift, ConstTensorView x,
                             ConstTensorView weight, ConstTensorView bias, std::int64_t num_groups,
                             float eps);
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

}  // namespace miniacc::ops::cpu
