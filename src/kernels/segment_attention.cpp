#include "kernels/segment_attention.h"

#include "core/build_config.h"
#include "kernels/attention.h"
#include "kernels/contract.h"
#include "kernels/cuda/ops.h"
#include "kernels/norm.h"
#include "kernels/rope.h"

namespace miniacc::ops {

void segment_attention(OpContext& ctx, TensorView out, TensorView q, TensorView k,
                       ConstTensorView v, const SegmentAttention& options) {
  MINIACC_REQUIRE(
      q.shape.rank() == 3 && q.shape == k.shape && q.shape == v.shape && q.shape == out.shape,
      "segment_attention: q, k, v and out are [rows, heads, head_dim]");
  MINIACC_REQUIRE(options.segment_rows > 0 && q.dim(0) % options.segment_rows == 0,
                  "segment_attention: rows are whole segments");
  MINIACC_REQUIRE(options.cos.shape.rank() == 2 && options.cos.shape == options.sin.shape &&
                      options.cos.dim(0) == options.segment_rows &&
                      2 * options.cos.dim(1) <= q.dim(2) && options.cos.is_contiguous() &&
                      options.sin.is_contiguous(),
                  "segment_attention: cos and sin are [segment_rows, n], 2n <= head_dim");
  MINIACC_REQUIRE(options.precision != Precision::kInt8, "segment_attention: f32 or bf16");
  MINIACC_REQUIRE(all_f32_on(out.device, {out, q, k, v, options.cos, options.sin}),
                  "segment_attention: f32 on one device");
  for (const ConstTensorView& view :
       {ConstTensorView(out), ConstTensorView(q), ConstTensorView(k), v}) {
    MINIACC_REQUIRE(view.stride(2) == 1 && view.stride(1) == view.dim(2),
                    "segment_attention: heads and head_dim are packed");
  }
  if constexpr (kHasCuda) {
    if (out.device.kind == DeviceKind::kCuda && options.precision == Precision::kBF16) {
      cuda::segment_attention(ctx, out, q, k, v, options);
      return;
    }
  }
  for (std::int64_t first = 0; first < q.dim(0); first += options.segment_rows) {
    const TensorView queries = q.narrow(0, first, options.segment_rows);
    const TensorView keys = k.narrow(0, first, options.segment_rows);
    for (const TensorView& heads : {queries, keys}) {
      rms_norm(ctx, heads, heads, {}, options.norm_eps);
      apply_rope(ctx, heads, options.cos, options.sin);
    }
    attention(ctx, out.narrow(0, first, options.segment_rows), queries, keys,
              v.narrow(0, first, options.segment_rows),
              {.scale = options.scale, .precision = options.precision});
  }
}

}  // namespace miniacc::ops
