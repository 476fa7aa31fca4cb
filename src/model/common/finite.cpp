#include "model/common/finite.h"

#include <bit>
#include <cstddef>
#include <cstdint>

namespace miniacc {

bool all_finite(const OpContext& ctx, std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7F800000U;  // all ones: infinity or NaN
  const auto count = static_cast<std::int64_t>(values.size());
  std::int64_t bad = 0;
#pragma omp parallel for num_threads(ctx.num_threads) schedule(static) reduction(+ : bad)
  for (std::int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(values[static_cast<std::size_t>(i)]);
    bad += static_cast<std::int64_t>((bits & kExponent) == kExponent);
  }
  return bad == 0;
}

}  // namespace miniacc
