#include <cstdint>

#include "core/float_convert.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/linear.h"
#include "kernels/norm.h"

namespace miniacc::ops::cpu {
namespace {

void round_values(const OpContext& ctx, TensorView out, const Tensor& wide) {
  const std::int64_t columns = out.dim(1);
  const float* source = wide.f32().data();
  auto* target = out.as<std::uint16_t>();
  parallel_for(ctx, out.dim(0), columns, [&](std::int64_t row) {
    for (std::int64_t i = row * columns; i < (row + 1) * columns; ++i) {
      target[i] = float_to_bf16(source[i]);
    }
  });
}

}  // namespace

void rms_norm_rounded(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                      float eps) {
  Tensor wide = empty_tensor(ctx.device, out.shape);
  rms_norm(ctx, wide.view(), x, weight, eps);
  round_values(ctx, out, wide);
}

void silu_mul_rounded(OpContext& ctx, TensorView out, ConstTensorView gate, ConstTensorView value) {
  Tensor wide = empty_tensor(ctx.device, out.shape);
  silu_mul(ctx, wide.view(), gate, value);
  round_values(ctx, out, wide);
}

void split_rows(OpContext& ctx, TensorView out, ConstTensorView x, SplitSide side) {
  const std::int64_t columns = x.dim(1);
  parallel_for(ctx, x.dim(0), 3 * columns, [&](std::int64_t row) {
    const float* source = x.f32() + row * columns;
    std::uint16_t* target = out.as<std::uint16_t>() + 3 * row * columns;
    for (std::int64_t i = 0; i < columns; ++i) {
      const std::uint16_t high = float_to_bf16(source[i]);
      const std::uint16_t low = float_to_bf16(source[i] - bf16_to_float(high));
      target[i] = high;
      target[columns + i] = side == SplitSide::kActivation ? high : low;
      target[2 * columns + i] = side == SplitSide::kActivation ? low : high;
    }
  });
}

void linear_rounded(OpContext& ctx, TensorView out, ConstTensorView x, const WeightMatrix& w,
                    ConstTensorView bias) {
  const std::int64_t columns = x.dim(1);
  Tensor wide = empty_tensor(ctx.device, x.shape);
  const auto* source = x.as<std::uint16_t>();
  float* target = wide.f32().data();
  parallel_for(ctx, x.dim(0), columns, [&](std::int64_t row) {
    for (std::int64_t i = row * columns; i < (row + 1) * columns; ++i) {
      target[i] = bf16_to_float(source[i]);
    }
  });
  linear(ctx, out, wide.view(), w, bias);
}

}  // namespace miniacc::ops::cpu
