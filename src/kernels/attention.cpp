#include "kernels/attention.h"

#include <limits>

#include "kernels/attention_int8.h"
#include "kernels/contract.h"
#include "kernels/cpu/ops.h"
#include "kernels/cuda/ops.h"
#include "kernels/dispatch.h"

namespace miniacc::ops {
namespace {

bool heads_are_packed(const ConstTensorView& view) {
  return view.shape.rank() == 3 && view.dtype == DType::kF32 && view.stride(2) == 1 &&
         view.stride(1) == view.dim(2);
}

}  // namespace

std::int64_t padded_head_dim(std::int64_t head_dim) {
  for (const std::int64_t width : {32, 64, 128}) {
    if (head_dim <= width) {
      return width;
    }
  }
  return 0;
}

std::int64_t max_head_dim(DeviceKind device, Precision precision) {
  constexpr std::int64_t kMatrixInstructions = 128;
  constexpr std::int64_t kCudaF32 = 256;
  if (precision == Precision::kInt8) {
    return kMatrixInstructions;
  }
  if (device == DeviceKind::kCpu) {
    return std::numeric_limits<std::int64_t>::max();
  }
  return precision == Precision::kF32 ? kCudaF32 : kMatrixInstructions;
}

std::string_view attention_form(DeviceId device, Precision precision, std::int64_t head_dim) {
  MINIACC_REQUIRE(head_dim <= max_head_dim(device.kind, precision),
                  "attention_form: heads of a size that attention takes");
  const bool on_cpu = device.kind == DeviceKind::kCpu;
  switch (precision) {
    case Precision::kBF16:
      return on_cpu ? "bf16 cpu" : "bf16 mma.sync";
    case Precision::kInt8:
      return on_cpu ? "int8 cpu" : "int8 mma.sync";
    default:
      return "f32";
  }
}

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
  MINIACC_REQUIRE(options.precision != Precision::kInt8 || options.mask == AttentionMask::kNone,
                  "attention: int8 products have no mask");
  MINIACC_REQUIRE(k.dim(0) > 0 || q.dim(0) == 0, "attention: at least one key");
  MINIACC_REQUIRE(options.scale > 0.0F, "attention: scale is positive");
  MINIACC_REQUIRE(all_on(out.device, {q, k, v}), "attention: one device");
  MINIACC_REQUIRE(!may_overlap(out, q) && !may_overlap(out, k) && !may_overlap(out, v),
                  "attention: out must not alias its inputs");
  if (out.num_elements() == 0) {
    return;
  }
  if (options.precision == Precision::kInt8) {
    QuantizedAttention quantized =
        empty_quantized_attention(ctx.device, q.dim(0), q.dim(1), k.dim(0), k.dim(1), q.dim(2));
    quantize_attention(ctx, quantized, q, k, v);
    attention_int8(ctx, out, quantized, options.scale);
    return;
  }
  MINIACC_DISPATCH(attention, ctx, out, q, k, v, options);
}

}  // namespace miniacc::ops
