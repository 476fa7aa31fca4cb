#include "kernels/attention_int8.h"

#include <string>

#include "kernels/attention.h"
#include "kernels/contract.h"
#include "kernels/cpu/ops.h"
#include "kernels/cuda/ops.h"
#include "kernels/dispatch.h"

namespace miniacc::ops {
namespace {

constexpr std::int64_t kKeyTile = 64;
constexpr std::int64_t kGranules = 4;

bool heads_are_packed(const ConstTensorView& view) {
  return view.shape.rank() == 3 && view.dtype == DType::kF32 && view.stride(2) == 1 &&
         view.stride(1) == view.dim(2);
}

void require_inputs(const QuantizedAttention& out, ConstTensorView q, ConstTensorView k,
                    ConstTensorView v) {
  MINIACC_REQUIRE(heads_are_packed(q) && heads_are_packed(k) && heads_are_packed(v),
                  "quantize_attention: [rows, heads, head_dim] f32 with packed heads");
  MINIACC_REQUIRE(k.shape == v.shape && q.dim(2) == k.dim(2),
                  "quantize_attention: shapes of q, k and v");
  MINIACC_REQUIRE(q.dim(0) > 0 && k.dim(0) > 0, "quantize_attention: at least one query and key");
  const std::int64_t dim = padded_head_dim(q.dim(2));
  MINIACC_REQUIRE(out.head_dim == q.dim(2) && out.q.shape() == Shape({q.dim(1), q.dim(0), dim}) &&
                      out.k.shape() == Shape({k.dim(1), k.dim(0), dim}),
                  "quantize_attention: out was made for other sizes");
  MINIACC_REQUIRE(all_on(out.device, {q, k, v}), "quantize_attention: one device");
}

}  // namespace

QuantizedAttention empty_quantized_attention(Device& device, std::int64_t q_rows,
                                             std::int64_t heads, std::int64_t kv_rows,
                                             std::int64_t kv_heads, std::int64_t head_dim) {
  const std::int64_t dim = padded_head_dim(head_dim);
  if (head_dim < 1 || dim == 0) {
    throw InternalError("int8 attention takes head_dim 1 to 128, got " + std::to_string(head_dim));
  }
  MINIACC_REQUIRE(kv_heads > 0 && heads % kv_heads == 0,
                  "int8 attention: heads is a multiple of kv_heads");
  const std::int64_t tiles = (kv_rows + kKeyTile - 1) / kKeyTile;
  QuantizedAttention result;
  result.q = empty_tensor(device, {heads, q_rows, dim}, DType::kI8);
  result.q_scale = empty_tensor(device, {heads, q_rows});
  result.k = empty_tensor(device, {kv_heads, kv_rows, dim}, DType::kI8);
  result.k_scale = empty_tensor(device, {kv_heads, tiles, kGranules});
  result.v = empty_tensor(device, {kv_heads, kv_rows, dim}, DType::kF16);
  result.v_scale = empty_tensor(device, {kv_heads, dim});
  result.head_dim = head_dim;
  result.device = device.id();
  return result;
}

std::size_t quantized_attention_bytes(std::int64_t q_rows, std::int64_t heads, std::int64_t kv_rows,
                                      std::int64_t kv_heads, std::int64_t head_dim) {
  constexpr std::int64_t kAlignment = 256;
  const std::int64_t dim = padded_head_dim(head_dim);
  const std::int64_t tiles = (kv_rows + kKeyTile - 1) / kKeyTile;
  std::int64_t bytes = 0;
  for (const std::int64_t size :
       {heads * q_rows * dim, 4 * heads * q_rows, kv_heads * kv_rows * dim,
        4 * kv_heads * tiles * kGranules, 2 * kv_heads * kv_rows * dim, 4 * kv_heads * dim}) {
    bytes += (size + kAlignment - 1) / kAlignment * kAlignment;
  }
  return static_cast<std::size_t>(bytes);
}

void quantize_attention(OpContext& ctx, QuantizedAttention& out, ConstTensorView q,
                        ConstTensorView k, ConstTensorView v) {
  require_inputs(out, q, k, v);
  MINIACC_DISPATCH(quantize_attention, ctx, out, q, k, v);
}

void qk_norm_rope_quantize(OpContext& ctx, QuantizedAttention& out, ConstTensorView q,
                           ConstTensorView k, ConstTensorView v, const QkNormRope& options) {
  require_inputs(out, q, k, v);
  const Shape weights({q.dim(2)});
  MINIACC_REQUIRE(options.q_norm.shape == weights && options.k_norm.shape == weights &&
                      options.q_norm.is_contiguous() && options.k_norm.is_contiguous(),
                  "qk_norm_rope_quantize: norm weights are [head_dim]");
  MINIACC_REQUIRE(options.cos.empty() == options.sin.empty(),
                  "qk_norm_rope_quantize: cos and sin, or neither");
  MINIACC_REQUIRE(
      options.cos.empty() ||
          (options.cos.shape.rank() == 2 && options.cos.shape == options.sin.shape &&
           options.cos.dim(0) == q.dim(0) && options.cos.dim(0) == k.dim(0) &&
           2 * options.cos.dim(1) <= q.dim(2) && options.cos.is_contiguous() &&
           options.sin.is_contiguous()),
      "qk_norm_rope_quantize: cos and sin are [rows, n] for the rows of q and k, 2n <= head_dim");
  MINIACC_REQUIRE(
      all_f32_on(out.device, {options.q_norm, options.k_norm, options.cos, options.sin}),
      "qk_norm_rope_quantize: f32 on one device");
  MINIACC_DISPATCH(qk_norm_rope_quantize, ctx, out, q, k, v, options);
}

void attention_int8(OpContext& ctx, TensorView out, const QuantizedAttention& in, float scale) {
  MINIACC_REQUIRE(heads_are_packed(out) && out.dim(0) == in.q.shape()[1] &&
                      out.dim(1) == in.q.shape()[0] && out.dim(2) == in.head_dim,
                  "attention_int8: out is [q_rows, heads, head_dim] f32 with packed heads");
  MINIACC_REQUIRE(scale > 0.0F, "attention_int8: scale is positive");
  MINIACC_REQUIRE(all_on(out.device, {in.q.view(), in.k.view(), in.v.view()}),
                  "attention_int8: one device");
  MINIACC_DISPATCH(attention_int8, ctx, out, in, scale);
}

}  // namespace miniacc::ops
