#include "kernels/fused.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/ops.h"

namespace miniacc::ops::cpu {
namespace {

// Rows the chain of ops works on at once: its intermediate rows stay small and in the cache.
constexpr std::int64_t kRows = 256;

/// Quantises rows that `make(first, rows)` writes, a contiguous f32 chunk of them at a time.
template <typename Make>
void quantize_made_rows(OpContext& ctx, TensorView out, TensorView scale, std::int64_t group,
                        const Make& make) {
  Tensor buffer = empty_tensor(ctx.device, {std::min(out.dim(0), kRows), out.dim(1)});
  for (std::int64_t first = 0; first < out.dim(0); first += kRows) {
    ctx.check_cancelled();
    const std::int64_t count = std::min(kRows, out.dim(0) - first);
    const TensorView rows = buffer.view().narrow(0, 0, count);
    make(rows, first, count);
    if (group != 0) {
      rotate_rows(ctx, rows, group);
    }
    quantize_rows(ctx, out.narrow(0, first, count), scale.narrow(0, first, count), rows);
  }
}

}  // namespace

void rotate_quantize_rows(OpContext& ctx, TensorView out, TensorView scale, ConstTensorView x,
                          std::int64_t group) {
  const float* source = x.f32();
  quantize_made_rows(
      ctx, out, scale, group, [&](TensorView rows, std::int64_t first, std::int64_t count) {
        for (std::int64_t row = 0; row < count; ++row) {
          std::memcpy(rows.f32() + row * x.dim(1), source + (first + row) * x.stride(0),
                      static_cast<std::size_t>(x.dim(1)) * sizeof(float));
        }
      });
}

void modulated_rms_norm_quantize(OpContext& ctx, TensorView out, TensorView scale,
                                 ConstTensorView x, ConstTensorView weight, ConstTensorView shift,
                                 ConstTensorView gain, ConstTensorView index, float eps,
                                 std::int64_t group) {
  quantize_made_rows(ctx, out, scale, group,
                     [&](TensorView rows, std::int64_t first, std::int64_t count) {
                       modulated_rms_norm(ctx, rows, x.narrow(0, first, count), weight, shift, gain,
                                          index.narrow(0, first, count), eps);
                     });
}

void silu_mul_quantize(OpContext& ctx, TensorView out, TensorView scale, ConstTensorView gate,
                       ConstTensorView value, std::int64_t group) {
  quantize_made_rows(
      ctx, out, scale, group, [&](TensorView rows, std::int64_t first, std::int64_t count) {
        silu_mul(ctx, rows, gate.narrow(0, first, count), value.narrow(0, first, count));
      });
}

}  // namespace miniacc::ops::cpu
