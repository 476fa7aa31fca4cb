#include "model/dit/block.h"

#include <algorithm>
#include <cmath>

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/fused.h"
#include "kernels/low_rank.h"
#include "kernels/norm.h"
#include "kernels/residual.h"
#include "kernels/rope.h"
#include "model/common/row_chunks.h"

namespace miniacc {
namespace {

/// What stands before a branch and what its result is added with. The last four are empty in the
/// refiner, which modulates nothing.
struct Branch {
  ConstTensorView norm;  ///< [D]
  float eps;
  ConstTensorView shift = {};  ///< [table rows, D], as are scale and gate
  ConstTensorView scale = {};
  ConstTensorView gate = {};
  ConstTensorView index = {};  ///< [S] i32

  /// For rows [first, first + count).
  [[nodiscard]] Branch of_rows(std::int64_t first, std::int64_t count) const {
    Branch part = *this;
    if (!index.empty()) {
      part.index = index.narrow(0, first, count);
    }
    return part;
  }
};

struct Codes {
  TensorView values;  ///< [rows, k] i8
  TensorView scale;   ///< [rows]
};

Codes codes_for(BlockActivations& activations, std::int64_t rows, std::int64_t k) {
  return {activations.codes.view().narrow(0, 0, rows * k).reshape({rows, k}),
          activations.code_scale.view().narrow(0, 0, rows)};
}

bool takes_codes(const WeightMatrix& w, const BlockActivations& activations) {
  return !activations.codes.empty() && w.values.dtype == DType::kI8 &&
         ops::fits_fused_rows(w.values.device.kind, w.values.dim(1), w.rotation_group);
}

/// True where a producer may write the codes of the input and nothing else.
bool takes_only_codes(const WeightMatrix& w, const BlockActivations& activations) {
  return takes_codes(w, activations) && w.low_rank.empty();
}

/// out ← x · wᵀ: ops::linear with its bits, the codes of x in memory that is there already.
void linear_of_plain(OpContext& ctx, TensorView out, ConstTensorView x, const WeightMatrix& w,
                     BlockActivations& activations) {
  if (!takes_codes(w, activations)) {
    ops::linear(ctx, out, x, w);
    return;
  }
  const Codes codes = codes_for(activations, x.dim(0), x.dim(1));
  ops::rotate_quantize_rows(ctx, codes.values, codes.scale, x, w.rotation_group);
  WeightMatrix stored = w;
  stored.low_rank = {};
  ops::linear_quantized(ctx, out, codes.values, codes.scale, stored);
  ops::add_low_rank(ctx, out, x, w.low_rank);
}

/// out ← the branch's input for these rows of h · wᵀ.
void linear_of_norm(OpContext& ctx, TensorView out, ConstTensorView h, const Branch& branch,
                    const WeightMatrix& w, BlockActivations& activations) {
  const bool modulated = !branch.index.empty();
  if (modulated && takes_only_codes(w, activations)) {
    const Codes codes = codes_for(activations, h.dim(0), h.dim(1));
    ops::modulated_rms_norm_quantize(ctx, codes.values, codes.scale, h, branch.norm, branch.shift,
                                     branch.scale, branch.index, branch.eps, w.rotation_group);
    ops::linear_quantized(ctx, out, codes.values, codes.scale, w);
    return;
  }
  const TensorView y = activations.y.view().narrow(0, 0, h.dim(0));
  if (modulated) {
    ops::modulated_rms_norm(ctx, y, h, branch.norm, branch.shift, branch.scale, branch.index,
                            branch.eps);
  } else {
    ops::rms_norm(ctx, y, h, branch.norm, branch.eps);
  }
  linear_of_plain(ctx, out, y, w, activations);
}

/// out ← (silu(gate)·value) · wᵀ, [gate | value] = fc1.
void linear_of_silu_mul(OpContext& ctx, TensorView out, TensorView fc1, const WeightMatrix& w,
                        BlockActivations& activations) {
  const std::int64_t ffn = fc1.dim(1) / 2;
  const TensorView gate = fc1.narrow(1, 0, ffn);
  const TensorView value = fc1.narrow(1, ffn, ffn);
  if (takes_only_codes(w, activations)) {
    const Codes codes = codes_for(activations, fc1.dim(0), ffn);
    ops::silu_mul_quantize(ctx, codes.values, codes.scale, gate, value, w.rotation_group);
    ops::linear_quantized(ctx, out, codes.values, codes.scale, w);
    return;
  }
  const TensorView product = activations.activation.empty()
                                 ? gate
                                 : activations.activation.view().narrow(0, 0, fc1.dim(0));
  ops::silu_mul(ctx, product, gate, value);
  linear_of_plain(ctx, out, product, w, activations);
}

void add_to(OpContext& ctx, TensorView h, ConstTensorView y, const Branch& branch) {
  if (branch.index.empty()) {
    ops::add(ctx, h, y);
  } else {
    ops::gated_add(ctx, h, y, branch.gate, branch.index);
  }
}

/// Attention over activations.qkv; `rope` may be null. Returns the result, [S, heads · d], rows
/// strided where it lies in qkv.
ConstTensorView attend(OpContext& ctx, const DitBlockWeights& weights, const DitConfig& config,
                       const RopeTable* rope, BlockActivations& activations) {
  const std::int64_t rows = activations.qkv.shape()[0];
  const std::int64_t heads = config.num_heads;
  const TensorView qkv = activations.qkv.view();  // [S, 3 · heads, d]
  const TensorView q = qkv.narrow(1, 0, heads);
  const TensorView k = qkv.narrow(1, heads, heads);
  const TensorView v = qkv.narrow(1, 2 * heads, heads);
  const float scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim));
  if (activations.quantized) {
    ops::QkNormRope before = {
        .q_norm = weights.q_norm, .k_norm = weights.k_norm, .eps = config.qk_norm_eps};
    if (rope != nullptr) {
      before.cos = rope->cos.view();
      before.sin = rope->sin.view();
    }
    ops::qk_norm_rope_quantize(ctx, *activations.quantized, q, k, v, before);
    ops::attention_int8(ctx, q, *activations.quantized, scale);  // q has been read
    return qkv.reshape({rows, 3 * config.attention_size()}).narrow(1, 0, config.attention_size());
  }
  ops::rms_norm(ctx, q, q, weights.q_norm, config.qk_norm_eps);
  ops::rms_norm(ctx, k, k, weights.k_norm, config.qk_norm_eps);
  if (rope != nullptr) {
    ops::apply_rope(ctx, qkv.narrow(1, 0, 2 * heads), rope->cos.view(), rope->sin.view());
  }
  const TensorView out = activations.attention.view();  // [S, heads, d]
  ops::attention(ctx, out, q, k, v,
                 {.scale = scale,
                  .mask = ops::AttentionMask::kNone,
                  .precision = activations.attention_precision});
  return out.reshape({rows, config.attention_size()});
}

/// h += gate · out_proj(attention(qkv_proj(the branch's input)))
void attention_branch(OpContext& ctx, TensorView h, const Branch& branch,
                      const DitBlockWeights& weights, const DitConfig& config,
                      const RopeTable* rope, BlockActivations& activations) {
  const std::int64_t rows = h.dim(0);
  const std::int64_t chunk = activations.y.shape()[0];
  const TensorView qkv = activations.qkv.view().reshape({rows, 3 * config.attention_size()});
  for_row_chunks(rows, chunk, [&](std::int64_t first, std::int64_t count) {
    ctx.check_cancelled();
    linear_of_norm(ctx, qkv.narrow(0, first, count), h.narrow(0, first, count),
                   branch.of_rows(first, count), weights.qkv_proj, activations);
  });
  const ConstTensorView attention = attend(ctx, weights, config, rope, activations);
  for_row_chunks(rows, chunk, [&](std::int64_t first, std::int64_t count) {
    ctx.check_cancelled();
    const TensorView y = activations.y.view().narrow(0, 0, count);  // [count, D]
    linear_of_plain(ctx, y, attention.narrow(0, first, count), weights.out_proj, activations);
    add_to(ctx, h.narrow(0, first, count), y, branch.of_rows(first, count));
  });
}

/// h += gate · fc2(silu(gate)·value), [gate | value] = fc1(the branch's input), a chunk of rows at
/// a time, so that the wide inner activation stays small.
void mlp_branch(OpContext& ctx, TensorView h, const Branch& branch, const DitBlockWeights& weights,
                BlockActivations& activations) {
  for_row_chunks(h.dim(0), activations.y.shape()[0], [&](std::int64_t first, std::int64_t count) {
    ctx.check_cancelled();
    const TensorView rows = h.narrow(0, first, count);
    const Branch part = branch.of_rows(first, count);
    const TensorView fc1 = activations.fc1.view().narrow(0, 0, count);  // [count, 2F]
    const TensorView y = activations.y.view().narrow(0, 0, count);      // [count, D]
    linear_of_norm(ctx, fc1, rows, part, weights.fc1, activations);
    linear_of_silu_mul(ctx, y, fc1, weights.fc2, activations);
    add_to(ctx, rows, y, part);
  });
}

/// Shapes of a pass's buffers; of what is not needed, one without elements.
struct ActivationShapes {
  ActivationShapes(const DitConfig& config, std::int64_t rows, BlockPrecision precision,
                   DeviceKind device) {
    const std::int64_t chunk = std::min(rows, row_chunk(device));
    const std::int64_t widest =
        std::max({config.hidden_size, config.attention_size(), config.ffn_hidden_size});
    y = {chunk, config.hidden_size};
    qkv = {rows, 3 * config.num_heads, config.head_dim};
    fc1 = {chunk, 2 * config.ffn_hidden_size};
    // oneDNN's f32 products of strided rows may sum in another order than those of packed ones: the
    // CPU, whose f32 results are the reference, keeps the packed rows.
    if (device == DeviceKind::kCpu && precision.linear != Precision::kBF16) {
      activation = {chunk, config.ffn_hidden_size};
    }
    if (precision.attention != Precision::kInt8) {
      attention = {rows, config.num_heads, config.head_dim};
    }
    if (precision.linear == Precision::kInt8) {
      codes = {chunk * widest};
      code_scale = {chunk};
    }
  }
  Shape y;
  Shape qkv;
  Shape fc1;
  Shape activation = {0};
  Shape attention = {0};
  Shape codes = {0};
  Shape code_scale = {0};
};

Tensor tensor_or_none(Device& device, const Shape& shape, DType dtype = DType::kF32) {
  return shape.num_elements() == 0 ? Tensor() : empty_tensor(device, shape, dtype);
}

}  // namespace

BlockActivations::BlockActivations(Device& device, const DitConfig& config, std::int64_t num_rows,
                                   BlockPrecision precision)
    : attention_precision(precision.attention) {
  const ActivationShapes shapes(config, num_rows, precision, device.id().kind);
  y = empty_tensor(device, shapes.y);
  qkv = empty_tensor(device, shapes.qkv);
  fc1 = empty_tensor(device, shapes.fc1);
  activation = tensor_or_none(device, shapes.activation);
  attention = tensor_or_none(device, shapes.attention);
  codes = tensor_or_none(device, shapes.codes, DType::kI8);
  code_scale = tensor_or_none(device, shapes.code_scale);
  if (attention_precision == Precision::kInt8) {
    quantized = ops::empty_quantized_attention(device, num_rows, config.num_heads, num_rows,
                                               config.num_heads, config.head_dim);
  }
}

std::size_t BlockActivations::size_bytes(const DitConfig& config, std::int64_t num_rows,
                                         BlockPrecision precision, DeviceKind device) {
  constexpr std::size_t kAlignment = 256;
  const ActivationShapes shapes(config, num_rows, precision, device);
  std::size_t bytes = 0;
  const auto add = [&](const Shape& shape, std::size_t element_bytes) {
    const std::size_t size = static_cast<std::size_t>(shape.num_elements()) * element_bytes;
    bytes += (size + kAlignment - 1) / kAlignment * kAlignment;
  };
  for (const Shape* floats : {&shapes.y, &shapes.qkv, &shapes.fc1, &shapes.activation,
                              &shapes.attention, &shapes.code_scale}) {
    add(*floats, sizeof(float));
  }
  add(shapes.codes, 1);
  if (precision.attention == Precision::kInt8) {
    bytes += ops::quantized_attention_bytes(num_rows, config.num_heads, num_rows, config.num_heads,
                                            config.head_dim);
  }
  return bytes;
}

std::size_t BlockActivations::size_bytes() const {
  std::size_t bytes = quantized ? quantized->size_bytes() : 0;
  for (const Tensor* buffer : {&y, &qkv, &fc1, &activation, &attention, &codes, &code_scale}) {
    bytes += buffer->size_bytes();
  }
  return bytes;
}

void dit_block(OpContext& ctx, TensorView h, const DitBlockWeights& weights,
               const DitConfig& config, const BlockModulation& modulation, const RopeTable& rope,
               BlockActivations& activations) {
  const std::int64_t hidden = config.hidden_size;
  const auto branch = [&](const ConstTensorView& norm, std::int64_t first) {
    const auto vector = [&](std::int64_t position) {
      return modulation.table.narrow(1, (first + position) * hidden, hidden);
    };
    return Branch{.norm = norm,
                  .eps = config.norm_eps,
                  .shift = vector(0),
                  .scale = vector(1),
                  .gate = vector(2),
                  .index = modulation.index};
  };
  attention_branch(ctx, h, branch(weights.norm1, 0), weights, config, &rope, activations);
  mlp_branch(ctx, h, branch(weights.norm2, 3), weights, activations);
}

void refiner_block(OpContext& ctx, TensorView h, const DitBlockWeights& weights,
                   const DitConfig& config, BlockActivations& activations) {
  attention_branch(ctx, h, {.norm = weights.norm1, .eps = config.norm_eps}, weights, config,
                   nullptr, activations);
  mlp_branch(ctx, h, {.norm = weights.norm2, .eps = config.norm_eps}, weights, activations);
}

}  // namespace miniacc
