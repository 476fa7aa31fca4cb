#include "model/common/finite.h"

#include "kernels/copy.h"

namespace miniacc {

bool all_finite(OpContext& ctx, ConstTensorView values) { return ops::all_finite(ctx, values); }

bool all_finite(const OpContext& ctx, std::span<const float> values) {
  OpContext host = ctx;
  return ops::all_finite(
      host,
      ConstTensorView(values.data(), {static_cast<std::int64_t>(values.size())}, DType::kF32));
}

}  // namespace miniacc
