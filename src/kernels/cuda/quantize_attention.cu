#include <cmath>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx.cuh"

namespace miniacc::ops::cuda {
namespace {

// A warp works on one head of one row: lane l holds channels kPer·l .. of it, kPer = kDim / 32.
constexpr int kWarps = kBlock / kWarp;
constexpr int kKeyTile = 64;
constexpr int kGranules = 4;              // scales of k a tile
constexpr std::int64_t kChunkRows = 256;  // rows a block adds up
constexpr unsigned kAllLanes = 0xFFFFFFFF;
constexpr float kLargestE4m3 = 448.0F;
constexpr int kWgmmaTile = 128;  // keys a tile of v in the wgmma form

/// Where the heads of a [rows, heads, head_dim] view lie and what is done to them on the way in.
struct HeadRows {
  const float* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t rows = 0;
  int head_dim = 0;
  const float* norm = nullptr;  ///< [head_dim], or null: no norm
  float eps = 0.0F;
  const float* cos = nullptr;  ///< [rows, n], or null: no rotary embedding
  const float* sin = nullptr;
  int n = 0;
};

/// Whether every lane's channels of every head can be read at once.
__host__ __device__ inline bool reads_vectors(const HeadRows& from, int dim) {
  const bool whole = from.head_dim == dim && from.row_stride % 4 == 0;
  return whole && reinterpret_cast<std::uintptr_t>(from.data) % 16 == 0;
}

/// kPer floats from or to 4·kPer-byte aligned memory; kPer is 1, 2 or 4.
template <int kPer>
struct alignas(4 * kPer) Floats {
  float at[kPer];
};

/// 1 / sqrt(mean of a head's squares + eps) in double. Warp.
template <int kPer>
__device__ float wide_norm_factor(const float (&values)[kPer], const HeadRows& from) {
  double squares = 0.0;
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    squares += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    squares += __shfl_xor_sync(kAllLanes, squares, distance);
  }
  return static_cast<float>(
      1.0 / sqrt(squares / static_cast<double>(from.head_dim) + static_cast<double>(from.eps)));
}

/// This lane's channels of a head, normalised and rotated; zeros beyond head_dim. `line` is kDim
/// floats of shared memory for this warp alone, aligned like Floats. The operations are those of
/// rms_norm and apply_rope, but for the squares, whose sum is f32. Warp.
template <int kPer>
__device__ void load_head(float (&values)[kPer], const HeadRows& from, std::int64_t row,
                          std::int64_t head, float* line) {
  const int first = static_cast<int>(threadIdx.x) % kWarp * kPer;
  const float* source = from.data + row * from.row_stride + head * from.head_dim;
  if (reads_vectors(from, kPer * kWarp)) {
    const auto vector = *reinterpret_cast<const Floats<kPer>*>(source + first);
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      values[i] = vector.at[i];
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      values[i] = first + i < from.head_dim ? source[first + i] : 0.0F;
    }
  }
  if (from.norm != nullptr) {
    float squares = 0.0F;
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      squares += values[i] * values[i];
    }
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      squares += __shfl_xor_sync(kAllLanes, squares, distance);
    }
    float factor = 1.0F / sqrtf(squares / static_cast<float>(from.head_dim) + from.eps);
    if (!(squares < 0x1.0p120F)) {  // all lanes or none: a head whose squares leave f32's range
      factor = wide_norm_factor(values, from);
    }
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const float weight = first + i < from.head_dim ? from.norm[first + i] : 0.0F;
      values[i] = values[i] * factor * weight;
    }
  }
  if (from.cos != nullptr) {
    __syncwarp();  // the head before this one has been read
    Floats<kPer> vector;
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      vector.at[i] = values[i];
    }
    *reinterpret_cast<Floats<kPer>*>(line + first) = vector;
    __syncwarp();
    const float* cosines = from.cos + row * from.n;
    const float* sines = from.sin + row * from.n;
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const int channel = first + i;
      if (channel < from.n) {
        values[i] = values[i] * cosines[channel] - line[channel + from.n] * sines[channel];
      } else if (channel < 2 * from.n) {
        const int angle = channel - from.n;
        values[i] = values[i] * cosines[angle] + line[angle] * sines[angle];
      }
    }
  }
}

/// A head times S·H, see attention_int8.h, with the additions of the CPU. Warp.
template <int kPer>
__device__ void rotate_head(float (&values)[kPer], float norm) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    const int channel = lane * kPer + i;
    const std::uint64_t signs = channel < 64 ? kChannelSignsLow : kChannelSignsHigh;
    values[i] *= ((signs >> (channel & 63)) & 1U) != 0 ? -norm : norm;
  }
#pragma unroll
  for (int stride = 1; stride < kPer; stride *= 2) {
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      if ((i & stride) == 0) {
        const float a = values[i];
        const float b = values[i + stride];
        values[i] = a + b;
        values[i + stride] = a - b;
      }
    }
  }
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const float other = __shfl_xor_sync(kAllLanes, values[i], distance);
      values[i] = (lane & distance) == 0 ? values[i] + other : other - values[i];
    }
  }
}

__device__ inline unsigned magnitude_bits(float value) {
  return __float_as_uint(value) & 0x7FFFFFFFU;
}

/// The scale of values whose largest magnitude has these bits, as in quantize_rows.
__device__ inline float scale_of(unsigned peak_bits) {
  if (peak_bits >= 0x7F800000U) {
    return nanf("");
  }
  return peak_bits == 0 ? 1.0F
                        : fmaxf(__fdiv_rn(__uint_as_float(peak_bits), 127.0F), __uint_as_float(1));
}

/// value / scale rounded as a division rounds it, in a product and one step of correction where
/// neither that step nor the reciprocal leaves the normal numbers.
__device__ inline float quotient(float value, float scale, float reciprocal) {
  if (scale > 0x1.0p-60F && scale < 0x1.0p60F) {
    const float near = value * reciprocal;
    return fmaf(fmaf(-near, scale, value), reciprocal, near);
  }
  return __fdiv_rn(value, scale);
}

/// Codes of this lane's channels, as in quantize_rows; zeros where the scale is NaN. `target` is
/// kPer-byte aligned.
template <int kPer>
__device__ void store_codes(std::int8_t* target, const float (&values)[kPer], float scale) {
  struct alignas(kPer) Codes {
    std::int8_t at[kPer];
  };
  const float reciprocal = __fdiv_rn(1.0F, scale);
  Codes codes;
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    const float code = fminf(fmaxf(quotient(values[i], scale, reciprocal), -127.0F), 127.0F);
    codes.at[i] = scale == scale ? static_cast<std::int8_t>(rintf(code)) : std::int8_t{0};
  }
  *reinterpret_cast<Codes*>(target) = codes;
}

// Reads k and v once: 8 bytes a value pair. A block adds up 256 rows of one kv head: the channels'
// sums of k in double, the largest magnitudes of v; a warp takes every eighth row.
template <int kDim>
__global__ void __launch_bounds__(kBlock)
    attention_stats_kernel(double* k_sums, unsigned* v_peaks, HeadRows k, HeadRows v) {
  constexpr int kPer = kDim / kWarp;
  __shared__ __align__(16) float lines[kWarps][kDim];
  __shared__ double sums[kWarps][kDim];
  __shared__ unsigned peaks[kWarps][kDim];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int first = static_cast<int>(threadIdx.x) % kWarp * kPer;
  const std::int64_t head = blockIdx.y;
  double sum[kPer] = {};
  unsigned peak[kPer] = {};
  const std::int64_t start = static_cast<std::int64_t>(blockIdx.x) * kChunkRows;
  for (std::int64_t row = start + warp; row < start + kChunkRows && row < k.rows; row += kWarps) {
    float values[kPer];
    load_head(values, k, row, head, lines[warp]);
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      sum[i] += static_cast<double>(values[i]);
    }
    load_head(values, v, row, head, lines[warp]);
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      peak[i] = max(peak[i], magnitude_bits(values[i]));
    }
  }
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    sums[warp][first + i] = sum[i];
    peaks[warp][first + i] = peak[i];
  }
  __syncthreads();
  const int channel = static_cast<int>(threadIdx.x);
  if (channel < kDim) {
    double total = 0.0;
    unsigned largest = 0;
    for (int w = 0; w < kWarps; ++w) {
      total += sums[w][channel];
      largest = max(largest, peaks[w][channel]);
    }
    const std::int64_t at = (blockIdx.x * static_cast<std::int64_t>(gridDim.y) + head) * kDim;
    k_sums[at + channel] = total;
    v_peaks[at + channel] = largest;
  }
}

// One thread a channel of a kv head; a few hundred sums each.
__global__ void __launch_bounds__(kBlock)
    attention_means_kernel(float* k_mean, float* v_scale, const double* k_sums,
                           const unsigned* v_peaks, std::int64_t chunks, std::int64_t channels,
                           std::int64_t rows, float v_steps) {
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (channel >= channels) {
    return;
  }
  double total = 0.0;
  unsigned largest = 0;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    total += k_sums[chunk * channels + channel];
    largest = max(largest, v_peaks[chunk * channels + channel]);
  }
  k_mean[channel] = static_cast<float>(total / static_cast<double>(rows));
  const float scale =
      largest == 0 ? 1.0F : fmaxf(__fdiv_rn(__uint_as_float(largest), v_steps), __uint_as_float(1));
  v_scale[channel] = largest >= 0x7F800000U ? nanf("") : scale;
}

/// Byte of a row of codes where this lane's channels begin; in the wgmma form the 16-byte chunks of
/// a row are permuted, see QuantizedAttention.
template <AttentionForm kForm, int kPer>
__device__ inline int lane_place(std::int64_t row) {
  const int byte = static_cast<int>(threadIdx.x) % kWarp * kPer;
  if constexpr (kForm == AttentionForm::kWgmma) {
    return ((byte / 16) ^ static_cast<int>(row % 8)) * 16 + byte % 16;
  }
  return byte;
}

// Moves 5 bytes a value (4 read, 1 written); bound by memory. A warp a row, eight rows a block.
// Rows from q.rows to padded_rows become zeros.
template <AttentionForm kForm, int kDim>
__global__ void __launch_bounds__(kBlock)
    quantize_queries_kernel(std::int8_t* out, float* scale, HeadRows q, std::int64_t padded_rows,
                            float norm) {
  constexpr int kPer = kDim / kWarp;
  __shared__ __align__(16) float lines[kWarps][kDim];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t head = blockIdx.y;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp;
  if (row >= padded_rows) {
    return;  // a whole warp
  }
  float values[kPer] = {};
  if (row < q.rows) {
    load_head(values, q, row, head, lines[warp]);
  }
  rotate_head(values, norm);
  unsigned peak = 0;
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    peak = max(peak, magnitude_bits(values[i]));
  }
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    peak = max(peak, __shfl_xor_sync(kAllLanes, peak, distance));
  }
  const float step = scale_of(peak);
  store_codes(out + (head * padded_rows + row) * kDim + lane_place<kForm, kPer>(row), values, step);
  if (lane == 0 && row < q.rows) {
    scale[head * q.rows + row] = step;
  }
}

/// This lane's channels of v in units of v_scale; zeros where that is NaN. Warp.
template <int kPer>
__device__ void load_units(float (&units)[kPer], const HeadRows& v, const float (&scale)[kPer],
                           const float (&reciprocal)[kPer], std::int64_t row, std::int64_t head,
                           float* line) {
  load_head(units, v, row, head, line);
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    units[i] = scale[i] == scale[i] ? quotient(units[i], scale[i], reciprocal[i]) : 0.0F;
  }
}

// Moves 11 bytes a pair of k and v (8 read, 3 written; 2 in the wgmma form); bound by memory. A
// block works on one tile of 64 keys of one kv head: warp w on keys w, w + 8, ..., whose scale
// warps 2g and 2g + 1 share. In the wgmma form it turns its half of a tile of v in shared memory.
template <AttentionForm kForm, int kDim>
__global__ void __launch_bounds__(kBlock)
    quantize_keys_kernel(std::int8_t* k_out, float* k_scale, unsigned char* v_out,
                         const float* k_mean, const float* v_scale, HeadRows k, HeadRows v,
                         std::int64_t padded_rows, float norm) {
  constexpr bool kWgmma = kForm == AttentionForm::kWgmma;
  constexpr int kPer = kDim / kWarp;
  constexpr int kEach = kKeyTile / kWarps;
  constexpr int kTurnedRow = kKeyTile + 4;  // bytes: lanes 4 channels apart in 8 banks
  __shared__ __align__(16) float lines[kWarps][kDim];
  __shared__ unsigned peaks[kWarps];
  __shared__ __align__(16) unsigned char turned[kWgmma ? kDim * kTurnedRow : 16];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first = lane * kPer;
  const std::int64_t head = blockIdx.y;
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x) * kKeyTile + warp;
  float values[kEach][kPer];
  unsigned peak = 0;
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const std::int64_t row = first_row + j * kWarps;
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      values[j][i] = 0.0F;
    }
    if (row < k.rows) {
      load_head(values[j], k, row, head, lines[warp]);
#pragma unroll
      for (int i = 0; i < kPer; ++i) {
        values[j][i] -= k_mean[head * kDim + first + i];
      }
      rotate_head(values[j], norm);
#pragma unroll
      for (int i = 0; i < kPer; ++i) {
        peak = max(peak, magnitude_bits(values[j][i]));
      }
    }
  }
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    peak = max(peak, __shfl_xor_sync(kAllLanes, peak, distance));
  }
  if (lane == 0) {
    peaks[warp] = peak;
  }
  __syncthreads();
  const float step = scale_of(max(peaks[warp & ~1], peaks[warp | 1]));
  if (lane == 0 && warp % 2 == 0) {
    k_scale[(head * gridDim.x + blockIdx.x) * kGranules + warp / 2] = step;
  }
  float unit[kPer];
  float per_unit[kPer];
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    unit[i] = v_scale[head * kDim + first + i];
    per_unit[i] = __fdiv_rn(1.0F, unit[i]);
  }
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const std::int64_t row = first_row + j * kWarps;
    if (row >= padded_rows) {
      continue;
    }
    store_codes(k_out + (head * padded_rows + row) * kDim + lane_place<kForm, kPer>(row), values[j],
                step);
    float units[kPer] = {};
    if (row < k.rows) {
      load_units(units, v, unit, per_unit, row, head, lines[warp]);
    }
    if constexpr (kWgmma) {
      const int key = j * kWarps + warp;
      const int place = key / 16 * 16 + key % 8 / 2 * 4 + key % 16 / 8 * 2 + key % 2;
#pragma unroll
      for (int i = 0; i < kPer; ++i) {
        turned[(first + i) * kTurnedRow + place] =
            static_cast<unsigned char>(ptx::pack_e4m3(units[i], 0.0F, 0.0F, 0.0F));
      }
    } else {
      auto* halves = reinterpret_cast<std::uint16_t*>(v_out) + (head * padded_rows + row) * kDim;
#pragma unroll
      for (int i = 0; i < kPer; ++i) {
        halves[first + i] = static_cast<std::uint16_t>(ptx::pack_f16(units[i], 0.0F));
      }
    }
  }
  if constexpr (kWgmma) {
    __syncthreads();
    constexpr int kWords = kKeyTile / 4;  // of a channel
    const std::int64_t first_key = static_cast<std::int64_t>(blockIdx.x) * kKeyTile;
    unsigned char* tile = v_out + (head * padded_rows + first_key / kWgmmaTile * kWgmmaTile) * kDim;
    const int first_chunk = static_cast<int>(first_key % kWgmmaTile) / 16;
    for (int at = static_cast<int>(threadIdx.x); at < kDim * kWords; at += kBlock) {
      const int channel = at / kWords;
      const int word = at % kWords;
      const int chunk = (first_chunk + word / 4) ^ (channel % 8);
      *reinterpret_cast<std::uint32_t*>(tile + channel * kWgmmaTile + chunk * 16 + word % 4 * 4) =
          *reinterpret_cast<const std::uint32_t*>(turned + channel * kTurnedRow + word * 4);
    }
  }
}

template <AttentionForm kForm, int kDim>
void quantize(OpContext& ctx, QuantizedAttention& out, const HeadRows& q, const HeadRows& k,
              const HeadRows& v) {
  constexpr const char* kOp = "quantize_attention";
  const std::int64_t heads = out.q.shape()[0];
  const std::int64_t kv_heads = out.k.shape()[0];
  const std::int64_t q_rows = out.q.shape()[1];
  const std::int64_t kv_rows = out.k.shape()[1];
  const std::int64_t chunks = div_up(k.rows, kChunkRows);
  const TensorView where = out.q.view();
  const float norm = 1.0F / std::sqrt(static_cast<float>(kDim));
  const float v_steps = kForm == AttentionForm::kWgmma ? kLargestE4m3 : 1.0F;
  Tensor k_sums = empty_tensor(ctx.device, {chunks, kv_heads, kDim}, DType::kF64);
  Tensor v_peaks = empty_tensor(ctx.device, {chunks, kv_heads, kDim}, DType::kI32);
  Tensor k_mean = empty_tensor(ctx.device, {kv_heads, kDim});
  auto* sums = k_sums.view().as<double>();
  auto* peaks = v_peaks.view().as<unsigned>();
  launch(kOp, ctx, where, dim3(grid_x(chunks), static_cast<unsigned>(kv_heads)), dim3(kBlock),
         attention_stats_kernel<kDim>, sums, peaks, k, v);
  launch(kOp, ctx, where, dim3(grid_x(div_up(kv_heads * kDim, kBlock))), dim3(kBlock),
         attention_means_kernel, k_mean.view().f32(), out.v_scale.view().f32(), sums, peaks, chunks,
         kv_heads * kDim, k.rows, v_steps);
  launch(kOp, ctx, where, dim3(grid_x(div_up(q_rows, kWarps)), static_cast<unsigned>(heads)),
         dim3(kBlock), quantize_queries_kernel<kForm, kDim>, out.q.view().as<std::int8_t>(),
         out.q_scale.view().f32(), q, q_rows, norm);
  launch(kOp, ctx, where, dim3(grid_x(div_up(kv_rows, kKeyTile)), static_cast<unsigned>(kv_heads)),
         dim3(kBlock), quantize_keys_kernel<kForm, kDim>, out.k.view().as<std::int8_t>(),
         out.k_scale.view().f32(), static_cast<unsigned char*>(out.v.view().data),
         k_mean.view().f32(), out.v_scale.view().f32(), k, v, kv_rows, norm);
}

HeadRows head_rows(ConstTensorView x) {
  HeadRows rows;
  rows.data = x.f32();
  rows.row_stride = x.stride(0);
  rows.rows = x.dim(0);
  rows.head_dim = static_cast<int>(x.dim(2));
  return rows;
}

void quantize_any(OpContext& ctx, QuantizedAttention& out, const HeadRows& q, const HeadRows& k,
                  const HeadRows& v) {
  if (out.form == AttentionForm::kWgmma) {
    quantize<AttentionForm::kWgmma, 128>(ctx, out, q, k, v);
    return;
  }
  switch (out.q.shape()[2]) {
    case 32:
      quantize<AttentionForm::kMmaSync, 32>(ctx, out, q, k, v);
      return;
    case 64:
      quantize<AttentionForm::kMmaSync, 64>(ctx, out, q, k, v);
      return;
    default:
      quantize<AttentionForm::kMmaSync, 128>(ctx, out, q, k, v);
      return;
  }
}

}  // namespace

void quantize_attention(OpContext& ctx, QuantizedAttention& out, ConstTensorView q,
                        ConstTensorView k, ConstTensorView v) {
  quantize_any(ctx, out, head_rows(q), head_rows(k), head_rows(v));
}

void qk_norm_rope_quantize(OpContext& ctx, QuantizedAttention& out, ConstTensorView q,
                           ConstTensorView k, ConstTensorView v, const QkNormRope& options) {
  HeadRows queries = head_rows(q);
  HeadRows keys = head_rows(k);
  queries.norm = options.q_norm.f32();
  keys.norm = options.k_norm.f32();
  for (HeadRows* rows : {&queries, &keys}) {
    rows->eps = options.eps;
    if (!options.cos.empty()) {
      rows->cos = options.cos.f32();
      rows->sin = options.sin.f32();
      rows->n = static_cast<int>(options.cos.dim(1));
    }
  }
  quantize_any(ctx, out, queries, keys, head_rows(v));
}

}  // namespace miniacc::ops::cuda
