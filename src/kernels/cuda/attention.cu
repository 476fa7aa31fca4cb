#include "kernels/attention.h"

#include <string>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx.cuh"

namespace miniacc::ops::cuda {
namespace {

constexpr int kQueries = 32;  // a block
constexpr int kKeys = 32;     // at once
constexpr int kLanes = 8;     // threads that share a query
constexpr int kThreads = kQueries * kLanes;
constexpr int kMaxDim = 256;

struct Heads {
  const float* data;
  std::int64_t row_stride;
};

// Floor: 4·q_rows·kv_rows·head_dim·heads operations on the f32 units: the reference arithmetic on a
// GPU, for checking and for the models whose heads fit nothing else, not for speed. A block works
// on 32 queries of one head; a query's 8 threads share its keys, then its channels. Numerators of
// 32 keys are summed by themselves before they join the sum over all, which keeps f32 sums short.
__global__ void __launch_bounds__(kThreads)
    attention_f32_kernel(float* out, std::int64_t out_stride, Heads q, Heads k, Heads v,
                         std::int64_t q_rows, std::int64_t kv_rows, std::int64_t heads_per_kv,
                         int dim, float scale, bool causal) {
  constexpr unsigned kAllLanes = 0xFFFFFFFF;
  const float infinity = __int_as_float(0x7F800000);
  const int line = dim + 1;  // one float of padding: neighbouring rows begin in different banks
  auto* queries = reinterpret_cast<float*>(ptx::dynamic_shared());
  float* tile = queries + kQueries * line;
  float* numerators = tile + kKeys * line;
  const std::int64_t head = blockIdx.y;
  const std::int64_t kv_column = head / heads_per_kv * dim;
  const std::int64_t first_query = static_cast<std::int64_t>(blockIdx.x) * kQueries;
  const int query = static_cast<int>(threadIdx.x) / kLanes;
  const int part = static_cast<int>(threadIdx.x) % kLanes;
  const std::int64_t row = first_query + query;

  const auto load = [&](float* to, const Heads& from, std::int64_t column, std::int64_t first,
                        std::int64_t rows, int count) {
    for (int i = static_cast<int>(threadIdx.x); i < count * dim; i += kThreads) {
      const int at = i / dim;
      const int channel = i % dim;
      to[at * line + channel] =
          first + at < rows ? from.data[(first + at) * from.row_stride + column + channel] : 0.0F;
    }
  };
  load(queries, q, head * dim, first_query, q_rows, kQueries);
  std::int64_t keys = kv_rows;
  if (causal && first_query + kQueries < keys) {
    keys = first_query + kQueries;
  }
  const std::int64_t visible = causal && row + 1 < keys ? row + 1 : keys;
  float peak = -infinity;
  float sum = 0.0F;
  float result[kMaxDim / kLanes] = {};
  for (std::int64_t first = 0; first < keys; first += kKeys) {
    __syncthreads();  // nobody reads the tile any more
    load(tile, k, kv_column, first, kv_rows, kKeys);
    __syncthreads();
    float scores[kKeys / kLanes];
    float largest = -infinity;
#pragma unroll
    for (int i = 0; i < kKeys / kLanes; ++i) {
      const int key = part + kLanes * i;
      float score = 0.0F;
      for (int channel = 0; channel < dim; ++channel) {
        score += queries[query * line + channel] * tile[key * line + channel];
      }
      scores[i] = score;
      if (first + key < visible) {
        largest = fmaxf(largest, score);
      }
    }
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, distance));
    }
    const float next = fmaxf(peak, largest);
    const float origin = next == -infinity ? 0.0F : next;
    const float fade = expf(scale * (peak - origin));
    peak = next;
    float added = 0.0F;
#pragma unroll
    for (int i = 0; i < kKeys / kLanes; ++i) {
      const int key = part + kLanes * i;
      const float numerator = first + key < visible ? expf(scale * (scores[i] - origin)) : 0.0F;
      numerators[query * (kKeys + 1) + key] = numerator;
      added += numerator;
    }
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      added += __shfl_xor_sync(kAllLanes, added, distance);
    }
    sum = sum * fade + added;
    __syncthreads();  // K has been read, the numerators are written
    load(tile, v, kv_column, first, kv_rows, kKeys);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kMaxDim / kLanes; ++i) {
      const int channel = part + kLanes * i;
      if (channel < dim) {
        float short_sum = 0.0F;
        for (int key = 0; key < kKeys; ++key) {
          short_sum += numerators[query * (kKeys + 1) + key] * tile[key * line + channel];
        }
        result[i] = result[i] * fade + short_sum;
      }
    }
  }
  if (row < q_rows) {
    float* target = out + row * out_stride + head * dim;
#pragma unroll
    for (int i = 0; i < kMaxDim / kLanes; ++i) {
      const int channel = part + kLanes * i;
      if (channel < dim) {
        target[channel] = result[i] / sum;
      }
    }
  }
}

}  // namespace

void attention_f32(OpContext& ctx, TensorView out, ConstTensorView q, ConstTensorView k,
                   ConstTensorView v, bool causal, float scale) {
  const std::int64_t dim = q.dim(2);
  if (dim > kMaxDim) {
    throw InternalError("attention: f32 on CUDA takes head_dim up to 256, got " +
                        std::to_string(dim));
  }
  const auto floats =
      static_cast<std::size_t>((kQueries + kKeys) * (dim + 1) + kQueries * (kKeys + 1));
  launch_shared("attention", ctx, out,
                dim3(grid_x(div_up(q.dim(0), kQueries)), static_cast<unsigned>(q.dim(1))),
                dim3(kThreads), floats * sizeof(float), attention_f32_kernel, out.f32(),
                out.stride(0), Heads{q.f32(), q.stride(0)}, Heads{k.f32(), k.stride(0)},
                Heads{v.f32(), v.stride(0)}, q.dim(0), k.dim(0), q.dim(1) / k.dim(1),
                static_cast<int>(dim), scale, causal);
}

void attention(OpContext& ctx, TensorView out, ConstTensorView q, ConstTensorView k,
               ConstTensorView v, const AttentionOptions& options) {
  ctx.check_cancelled();
  const bool causal = options.mask == AttentionMask::kCausal;
  if (options.precision == Precision::kBF16) {
    attention_bf16(ctx, out, q, k, v, causal, options.scale);
  } else {
    attention_f32(ctx, out, q, k, v, causal, options.scale);
  }
}

}  // namespace miniacc::ops::cuda
