#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/ops.h"

namespace miniacc::ops::cpu {
namespace {

std::size_t bytes_of(const ConstTensorView& view) {
  const auto bytes = storage_bytes(view.dtype, view.num_elements());
  MINIACC_REQUIRE(bytes.has_value(), "copy: a view has a size");
  return *bytes;
}

}  // namespace

void copy(OpContext& /*ctx*/, TensorView out, ConstTensorView x) {
  std::memcpy(out.data, x.data, bytes_of(x));
}

void fill_zero(OpContext& /*ctx*/, TensorView x) { std::memset(x.data, 0, bytes_of(x)); }

void divide(OpContext& /*ctx*/, TensorView x, float divisor) {
  float* values = x.f32();
  std::for_each(values, values + x.num_elements(), [&](float& value) { value /= divisor; });
}

bool all_finite(OpContext& ctx, ConstTensorView x) {
  constexpr std::uint32_t kExponent = 0x7F800000U;  // all ones: infinity or NaN
  const float* values = x.f32();
  const std::int64_t count = x.num_elements();
  std::int64_t bad = 0;
#pragma omp parallel for num_threads(ctx.num_threads) schedule(static) reduction(+ : bad)
  for (std::int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(values[i]);
    bad += static_cast<std::int64_t>((bits & kExponent) == kExponent);
  }
  return bad == 0;
}

}  // namespace miniacc::ops::cpu
