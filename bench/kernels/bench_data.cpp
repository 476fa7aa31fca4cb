#include "kernels/bench_data.h"

#include "core/float_convert.h"
#include "kernels/linear.h"

namespace miniacc::bench {

Tensor uniform_tensor(Device& device, const Shape& shape, std::uint64_t seed) {
  Tensor tensor = empty_tensor(device, shape);
  // Knuth's MMIX generator; the high bits are good enough for benchmark data.
  std::uint64_t state = seed * 2 + 1;
  for (float& value : tensor.f32()) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    value = static_cast<float>(static_cast<std::int64_t>(state) >> 32) * 0x1.0p-31F;
  }
  return tensor;
}

OwnedWeightMatrix uniform_weights(OpContext& ctx, std::int64_t n, std::int64_t k,
                                  Precision precision, std::uint64_t seed) {
  OwnedWeightMatrix weights;
  Tensor values = uniform_tensor(ctx.device, {n, k}, seed);
  if (precision == Precision::kF32) {
    weights.values = std::move(values);
  } else if (precision == Precision::kBF16) {
    weights.values = empty_tensor(ctx.device, {n, k}, DType::kBF16);
    auto* bits = weights.values.view().as<std::uint16_t>();
    for (const float value : values.f32()) {
      *bits++ = float_to_bf16(value);
    }
  } else {
    weights.values = empty_tensor(ctx.device, {n, k}, DType::kI8);
    weights.row_scale = empty_tensor(ctx.device, {n});
    ops::quantize_rows(ctx, weights.values.view(), weights.row_scale.view(), values.view());
  }
  return weights;
}

}  // namespace miniacc::bench
