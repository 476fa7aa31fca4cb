#include "kernels/attention.h"

#include "kernels/contract.h"
#include "kernels/cpu/ops.h"
#include "kernels/dispatch.h"

namespace miniacc::ops {
namespace {

bool heads_are_packed(const ConstTensorView& view) {
  return view.shape.rank() == 3 && view.dtype == DType::kF32 && view.stride(2) == 1 &&
         view.stride(1) == view.dim(2);
}

}  // namespace

void attention(OpContext& ctx, TensorView out, ConstTensorView q, ConstTensorView k,
               ConstTensorView v, const AttentionOptions& options) {
  MINIACC_REQUIRE(
      heads_are_packed(q) && heads_are_packed(k) && heads_are_packed(v) && heads_are_packed(out),
      "attention: [rows, heads, head_dim] f32 with packed heads");
  MINIACC_REQUIRE(out.shape == q.shape && k.shape == v.shape && q.dim(2) == k.dim(2),
                  "attention: shapes of out and q, of k and v");
  MINIACC_REQUIRE(k.dim(1) > 0 && q.dim(1) % k.dim(1) == 0,
                  "attention: heads is a multiple of kv_heads");
  MINIACC_REQUIRE(options.mask == AttentionMask::kNone || q.dim(0) == k.dim(0),
                  "attention: a causal mask needs as many keys as queries");
  MINIACC_REQUIRE(options.precision != Precision::kInt8, "attention: f32 or bf16 products");
  MINIACC_REQUIRE(k.dim(0) > 0 || q.dim(0) == 0, "attention: at least one key");
  MINIACC_REQUIRE(options.scale > 0.0F, "attention: scale is positive");
  MINIACC_REQUIRE(all_on(out.device, {q, k, v}), "attention: one device");
  MINIACC_REQUIRE(!may_overlap(out, q) && !may_overlap(out, k) && !may_overlap(out, v),
                  "attention: out must not alias its inputs");
  if (out.num_elements() == 0) {
    return;
  }
  MINIACC_DISPATCH_CPU(attention, ctx, out, q, k, v, options);
}

}  // namespace miniacc::ops
