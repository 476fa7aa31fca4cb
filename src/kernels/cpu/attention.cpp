#include <algorithm>
#include <cmath>
#include <dnnl.hpp>

#include "kernels/cpu/dnnl_util.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace miniacc::ops::cpu {
namespace {

// Queries handled at once: scores take kQueryTile × keys floats, so memory stays linear in keys.
constexpr std::int64_t kQueryTile = 256;

/// In place: row ← exp(scale·row - max) and returns 1 / sum; `visible` leading keys count.
float softmax_numerator(float* row, std::int64_t visible, std::int64_t size, float scale) {
  float peak = row[0];
  for (std::int64_t i = 1; i < visible; ++i) {
    peak = std::max(peak, row[i]);
  }
  double sum = 0.0;
  for (std::int64_t i = 0; i < visible; ++i) {
    row[i] = std::exp((row[i] - peak) * scale);
    sum += static_cast<double>(row[i]);
  }
  std::fill(row + visible, row + size, 0.0F);
  return static_cast<float>(1.0 / sum);
}

void gemm(char transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
          std::int64_t lda, const float* b, std::int64_t ldb, float* c, std::int64_t ldc) {
  const dnnl_status_t status =
      dnnl_sgemm('N', transpose_b, m, n, k, 1.0F, a, lda, b, ldb, 0.0F, c, ldc);
  MINIACC_REQUIRE(status == dnnl_success, "attention: dnnl_sgemm failed");
}

}  // namespace

void attention(OpContext& ctx, TensorView out, ConstTensorView q, ConstTensorView k,
               ConstTensorView v, const AttentionOptions& options) {
  const std::int64_t queries = q.dim(0);
  const std::int64_t keys = k.dim(0);
  const std::int64_t head_dim = q.dim(2);
  const std::int64_t heads_per_kv = q.dim(1) / k.dim(1);
  const DnnlThreads threads(ctx.num_threads);
  Tensor scores = empty_tensor(ctx.device, {std::min(queries, kQueryTile), keys});
  for (std::int64_t head = 0; head < q.dim(1); ++head) {
    const std::int64_t kv_offset = head / heads_per_kv * head_dim;
    for (std::int64_t first = 0; first < queries; first += kQueryTile) {
      ctx.check_cancelled();
      const std::int64_t tile = std::min(kQueryTile, queries - first);
      const bool causal = options.mask == AttentionMask::kCausal;
      const std::int64_t visible_keys = causal ? first + tile : keys;
      float* tile_scores = scores.f32().data();
      gemm('T', tile, visible_keys, head_dim, q.f32() + first * q.stride(0) + head * head_dim,
           q.stride(0), k.f32() + kv_offset, k.stride(0), tile_scores, visible_keys);
      float* tile_out = out.f32() + first * out.stride(0) + head * head_dim;
      // The sum is divided out after the second product: head_dim values instead of `keys`.
      Tensor inverse_sums = empty_tensor(ctx.device, {tile});
      parallel_for(ctx, tile, [&](std::int64_t row) {
        const std::int64_t visible = causal ? first + row + 1 : keys;
        inverse_sums.f32()[static_cast<std::size_t>(row)] = softmax_numerator(
            tile_scores + row * visible_keys, visible, visible_keys, options.scale);
      });
      gemm('N', tile, head_dim, visible_keys, tile_scores, visible_keys, v.f32() + kv_offset,
           v.stride(0), tile_out, out.stride(0));
      parallel_for(ctx, tile, [&](std::int64_t row) {
        float* values = tile_out + row * out.stride(0);
        const float factor = inverse_sums.f32()[static_cast<std::size_t>(row)];
        for (std::int64_t i = 0; i < head_dim; ++i) {
          values[i] *= factor;
        }
      });
    }
  }
}

}  // namespace miniacc::ops::cpu
