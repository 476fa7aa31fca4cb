#include <algorithm>
#include <dnnl.hpp>

#include "core/float_convert.h"
#include "kernels/cpu/dnnl_util.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace miniacc::ops::cpu {
namespace {

using dnnl::memory;

// Queries handled at once: a thread's scores take kQueryTile × keys floats, so memory stays linear
// in keys. 128 rows keep the products efficient and 2000 keys of scores within the L2 cache.
constexpr std::int64_t kQueryTile = 128;

/// c [m, n] = a [m, k] · b, b stored [k, n], or [n, k] when transposed. Inside a parallel region
/// oneDNN runs on the calling thread alone.
void gemm_f32(bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
              std::int64_t lda, const float* b, std::int64_t ldb, float* c, std::int64_t ldc) {
  const dnnl_status_t status =
      dnnl_sgemm('N', transpose_b ? 'T' : 'N', m, n, k, 1.0F, a, lda, b, ldb, 0.0F, c, ldc);
  MINIACC_REQUIRE(status == dnnl_success, "attention: dnnl_sgemm failed");
}

/// The same with bf16 operands, f32 sums and an f32 result.
void gemm_bf16(bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
               const std::uint16_t* a, std::int64_t lda, const std::uint16_t* b, std::int64_t ldb,
               float* c, std::int64_t ldc) {
  DnnlSession session;
  const auto bf16 = memory::data_type::bf16;
  const memory::desc a_desc({m, k}, bf16, memory::dims{lda, 1});
  const memory::desc b_desc({k, n}, bf16,
                            transpose_b ? memory::dims{1, ldb} : memory::dims{ldb, 1});
  const memory::desc c_desc({m, n}, memory::data_type::f32, memory::dims{ldc, 1});
  const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(a_desc, b_desc, c_desc),
                                          session.engine);
  dnnl::matmul(desc).execute(session.stream,
                             {{DNNL_ARG_SRC, dnnl_memory(a_desc, session.engine, a)},
                              {DNNL_ARG_WEIGHTS, dnnl_memory(b_desc, session.engine, b)},
                              {DNNL_ARG_DST, dnnl_memory(c_desc, session.engine, c)}});
  session.stream.wait();
}

/// What one task works on: queries [first, first + tile) of one head, keys [0, visible).
struct Block {
  std::int64_t first, tile, visible, q_column, kv_column;
};

/// Softmax over the rows of one tile's scores; inverse_sums[row] is divided out after the second
/// product: head_dim values instead of `keys`.
void softmax_tile(float* scores, float* inverse_sums, const Block& block, bool causal,
                  float scale) {
  for (std::int64_t row = 0; row < block.tile; ++row) {
    const std::int64_t visible = causal ? block.first + row + 1 : block.visible;
    inverse_sums[row] =
        softmax_numerator(scores + row * block.visible, visible, block.visible, scale);
  }
}

void scale_tile(float* out, std::int64_t stride, const float* inverse_sums, const Block& block,
                std::int64_t head_dim) {
  for (std::int64_t row = 0; row < block.tile; ++row) {
    for (std::int64_t i = 0; i < head_dim; ++i) {
      out[row * stride + i] *= inverse_sums[row];
    }
  }
}

/// rows × columns of f32, rows `stride` apart, rounded to packed bf16.
void round_rows(std::uint16_t* out, const float* x, std::int64_t rows, std::int64_t columns,
                std::int64_t stride) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < columns; ++i) {
      out[row * columns + i] = float_to_bf16(x[row * stride + i]);
    }
  }
}

/// A view [rows, heads, head_dim] as packed bf16 [rows, heads · head_dim].
Tensor rounded(OpContext& ctx, ConstTensorView view) {
  const std::int64_t columns = view.dim(1) * view.dim(2);
  Tensor result = empty_tensor(ctx.device, {view.dim(0), columns}, DType::kBF16);
  auto* bits = result.view().as<std::uint16_t>();
  const float* source = view.f32();
  parallel_for(ctx, view.dim(0), columns, [&](std::int64_t row) {
    round_rows(bits + row * columns, source + row * view.stride(0), 1, columns, columns);
  });
  return result;
}

/// body(block) for every head and query tile; tasks share nothing but their inputs, so the result
/// does not depend on the number of threads.
template <typename Body>
void for_each_block(OpContext& ctx, ConstTensorView q, ConstTensorView k, bool causal,
                    const Body& body) {
  const std::int64_t heads = q.dim(1);
  const std::int64_t head_dim = q.dim(2);
  const std::int64_t heads_per_kv = heads / k.dim(1);
  const std::int64_t tiles = (q.dim(0) + kQueryTile - 1) / kQueryTile;
  const std::int64_t work = std::min(q.dim(0), kQueryTile) * k.dim(0) * (head_dim / 4 + 8);
  parallel_tasks(ctx, heads * tiles, work, [&](std::int64_t task) {
    const std::int64_t head = task / tiles;
    const std::int64_t first = task % tiles * kQueryTile;
    const std::int64_t tile = std::min(kQueryTile, q.dim(0) - first);
    body(Block{.first = first,
               .tile = tile,
               .visible = causal ? first + tile : k.dim(0),
               .q_column = head * head_dim,
               .kv_column = head / heads_per_kv * head_dim});
  });
}

void attention_f32(OpContext& ctx, TensorView out, ConstTensorView q, ConstTensorView k,
                   ConstTensorView v, bool causal, float scale) {
  const std::int64_t head_dim = q.dim(2);
  const float* queries = q.f32();
  const float* keys = k.f32();
  const float* values = v.f32();
  float* output = out.f32();
  for_each_block(ctx, q, k, causal, [&](const Block& b) {
    Tensor scratch = empty_tensor(ctx.device, {b.tile, b.visible + 1});
    float* scores = scratch.f32().data();
    float* inverse_sums = scores + b.tile * b.visible;
    gemm_f32(true, b.tile, b.visible, head_dim, queries + b.first * q.stride(0) + b.q_column,
             q.stride(0), keys + b.kv_column, k.stride(0), scores, b.visible);
    softmax_tile(scores, inverse_sums, b, causal, scale);
    float* tile_out = output + b.first * out.stride(0) + b.q_column;
    gemm_f32(false, b.tile, head_dim, b.visible, scores, b.visible, values + b.kv_column,
             v.stride(0), tile_out, out.stride(0));
    scale_tile(tile_out, out.stride(0), inverse_sums, b, head_dim);
  });
}

void attention_bf16(OpContext& ctx, TensorView out, ConstTensorView q, ConstTensorView k,
                    ConstTensorView v, bool causal, float scale) {
  const std::int64_t head_dim = q.dim(2);
  const std::int64_t q_columns = q.dim(1) * head_dim;
  const std::int64_t kv_columns = k.dim(1) * head_dim;
  const Tensor q_rounded = rounded(ctx, q);
  const Tensor k_rounded = rounded(ctx, k);
  const Tensor v_rounded = rounded(ctx, v);
  const auto* queries = q_rounded.view().as<std::uint16_t>();
  const auto* keys = k_rounded.view().as<std::uint16_t>();
  const auto* values = v_rounded.view().as<std::uint16_t>();
  float* output = out.f32();
  for_each_block(ctx, q, k, causal, [&](const Block& b) {
    Tensor scratch = empty_tensor(ctx.device, {b.tile, b.visible + 1});
    float* scores = scratch.f32().data();
    float* inverse_sums = scores + b.tile * b.visible;
    Tensor weights = empty_tensor(ctx.device, {b.tile, b.visible}, DType::kBF16);
    auto* weight_bits = weights.view().as<std::uint16_t>();
    gemm_bf16(true, b.tile, b.visible, head_dim, queries + b.first * q_columns + b.q_column,
              q_columns, keys + b.kv_column, kv_columns, scores, b.visible);
    softmax_tile(scores, inverse_sums, b, causal, scale);
    round_rows(weight_bits, scores, b.tile, b.visible, b.visible);
    float* tile_out = output + b.first * out.stride(0) + b.q_column;
    gemm_bf16(false, b.tile, head_dim, b.visible, weight_bits, b.visible, values + b.kv_column,
              kv_columns, tile_out, out.stride(0));
    scale_tile(tile_out, out.stride(0), inverse_sums, b, head_dim);
  });
}

}  // namespace

void attention(OpContext& ctx, TensorView out, ConstTensorView q, ConstTensorView k,
               ConstTensorView v, const AttentionOptions& options) {
  const bool causal = options.mask == AttentionMask::kCausal;
  // oneDNN takes the calling thread's setting where the work is too small for a parallel region.
  const DnnlThreads threads(1);
  if (options.precision == Precision::kBF16) {
    attention_bf16(ctx, out, q, k, v, causal, options.scale);
  } else {
    attention_f32(ctx, out, q, k, v, causal, options.scale);
  }
}

}  // namespace miniacc::ops::cpu
