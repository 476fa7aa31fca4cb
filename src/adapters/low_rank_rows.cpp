#include "adapters/low_rank_rows.h"

#include <algorithm>
#include <array>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"

namespace miniacc {
namespace {

// A tile of `down` (rank 128: 256 KiB) stays in the second-level cache for a group of rows.
constexpr std::int64_t kTileColumns = 512;
constexpr std::int64_t kGroupRows = 64;

using ops::cpu::has_avx2;
using ops::cpu::has_avx512;

template <int kLanes>
MINIACC_ISA_BODY void add_multiple_body(float* out, const float* x, float factor, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] += factor * x[i];
  }
}
MINIACC_ISA_VARIANTS(void, add_multiple, (float* out, const float* x, float factor, std::int64_t n),
                     (out, x, factor, n))

void add_to_tile(float* row, std::int64_t index, std::int64_t first_column, std::int64_t width,
                 std::int64_t columns, std::span<const DeltaRows> deltas) {
  std::array<float, kTileColumns> total;
  std::array<float, kTileColumns> product;
  bool any = false;
  for (const DeltaRows& delta : deltas) {
    if (index < delta.begin || index >= delta.end) {
      continue;
    }
    const std::int64_t local = index - delta.begin;
    const float* values = product.data();
    if (delta.dense != nullptr) {
      values = delta.dense + local * columns + first_column;
    } else {
      std::fill_n(product.begin(), width, 0.0F);
      const float* up = delta.up + local * delta.rank;
      for (std::int64_t r = 0; r < delta.rank; ++r) {
        if (up[r] != 0.0F) {
          add_multiple(product.data(), delta.down + r * columns + first_column, up[r], width);
        }
      }
    }
    for (std::int64_t i = 0; i < width; ++i) {
      const float scaled = delta.scale * values[i];
      total[static_cast<std::size_t>(i)] =
          any ? total[static_cast<std::size_t>(i)] + scaled : scaled;
    }
    any = true;
  }
  if (any) {
    for (std::int64_t i = 0; i < width; ++i) {
      row[first_column + i] += total[static_cast<std::size_t>(i)];
    }
  }
}

}  // namespace

void add_low_rank_rows(const OpContext& ctx, float* rows, std::int64_t count, std::int64_t columns,
                       std::span<const DeltaRows> deltas) {
  std::int64_t rank = 1;
  for (const DeltaRows& delta : deltas) {
    MINIACC_REQUIRE(delta.begin >= 0 && delta.begin <= delta.end && delta.end <= count,
                    "add_low_rank_rows: delta outside the slab");
    rank += delta.rank;
  }
  const std::int64_t groups = (count + kGroupRows - 1) / kGroupRows;
  ops::cpu::parallel_for(ctx, groups, kGroupRows * columns * rank, [&](std::int64_t group) {
    const std::int64_t end = std::min(count, (group + 1) * kGroupRows);
    for (std::int64_t first = 0; first < columns; first += kTileColumns) {
      const std::int64_t width = std::min(kTileColumns, columns - first);
      for (std::int64_t row = group * kGroupRows; row < end; ++row) {
        add_to_tile(rows + row * columns, row, first, width, columns, deltas);
      }
    }
  });
}

}  // namespace miniacc
