#include <algorithm>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace miniacc::ops::cpu {

void require_rows_in_table(ConstTensorView index, std::int64_t table_rows) {
  const auto* rows = index.as<std::int32_t>();
  MINIACC_REQUIRE(std::all_of(rows, rows + index.num_elements(),
                              [&](std::int32_t row) { return row >= 0 && row < table_rows; }),
                  "index: a row outside the table");
}

void add(OpContext& ctx, TensorView h, ConstTensorView x) {
  constexpr std::int64_t kBlock = 1 << 14;
  const std::int64_t size = h.num_elements();
  float* target = h.f32();
  const float* source = x.f32();
  parallel_for(ctx, (size + kBlock - 1) / kBlock, kBlock, [&](std::int64_t block) {
    const std::int64_t last = std::min(size, (block + 1) * kBlock);
    for (std::int64_t i = block * kBlock; i < last; ++i) {
      target[i] += source[i];
    }
  });
}

void gated_add(OpContext& ctx, TensorView h, ConstTensorView x, ConstTensorView gate,
               ConstTensorView index) {
  const std::int64_t size = h.dim(1);
  const auto* rows = index.empty() ? nullptr : index.as<std::int32_t>();
  if (!index.empty()) {
    require_rows_in_table(index, gate.dim(0));
  }
  float* output = h.f32();
  const float* input = x.f32();
  const float* gates = gate.f32();
  parallel_for(ctx, h.dim(0), size, [&](std::int64_t row) {
    float* target = output + row * size;
    const float* source = input + row * size;
    const float* factor = gates + (rows == nullptr ? 0 : rows[row] * gate.stride(0));
    for (std::int64_t i = 0; i < size; ++i) {
      target[i] += factor[i] * source[i];
    }
  });
}

}  // namespace miniacc::ops::cpu
