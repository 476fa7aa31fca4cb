#include <cmath>
#include <string>
#include <type_traits>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/silu.cuh"

namespace miniacc::ops::cuda {
namespace {

// A block works on one row and holds all of it in registers. A warp holds chunks of 256 values:
// chunk `warp + j·warps` in values[j], value 128·h + 4·lane + c of it in values[j][4·h + c], so
// that a warp reads runs of 512 bytes. 256 is the largest rotation group that stays inside a warp.
constexpr int kChunk = 256;
constexpr int kEach = kChunk / kWarp;  // values of a chunk a lane holds
constexpr int kMaxWarps = 16;
constexpr int kMaxChunks = 4;  // a warp: 32 registers a lane
constexpr unsigned kAllLanes = 0xFFFFFFFF;

__device__ inline int lane_of_thread() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ inline int warp_of_thread() { return static_cast<int>(threadIdx.x) / kWarp; }
__device__ inline int warps_of_block() { return static_cast<int>(blockDim.x) / kWarp; }

/// First column of values[j][4·half ..].
__device__ inline std::int64_t column_of(int j, int half) {
  return static_cast<std::int64_t>(warp_of_thread() + j * warps_of_block()) * kChunk + 128 * half +
         4 * lane_of_thread();
}

/// Four neighbours of a row, zeros beyond `size`; one 16-byte load where the address allows it.
__device__ inline float4 load_four(const float* row, std::int64_t column, std::int64_t size) {
  const float* source = row + column;
  if (column + 4 <= size && reinterpret_cast<std::uintptr_t>(source) % 16 == 0) {
    return *reinterpret_cast<const float4*>(source);
  }
  float4 four = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
  four.x = column < size ? source[0] : 0.0F;
  four.y = column + 1 < size ? source[1] : 0.0F;
  four.z = column + 2 < size ? source[2] : 0.0F;
  four.w = column + 3 < size ? source[3] : 0.0F;
  return four;
}

/// Combines one value a warp over the block; every thread gets the result. `of_warp` is shared
/// memory for kMaxWarps values that no one else uses.
template <typename T, typename Combine>
__device__ T block_reduce(T value, T* of_warp, Combine combine) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = combine(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  if (lane_of_thread() == 0) {
    of_warp[warp_of_thread()] = value;
  }
  __syncthreads();
  value = of_warp[0];
  for (int warp = 1; warp < warps_of_block(); ++warp) {
    value = combine(value, of_warp[warp]);
  }
  return value;
}

/// Row `place` of the 4×4 factor of ConvRot on (a, b, c, d), with the additions in the order of the
/// CPU: factors of ±1 are exact, fused or not.
__device__ inline float butterfly(int place, float a, float b, float c, float d) {
  const float first = place == 3 ? -a : a;
  const float second = place == 2 ? -b : b;
  const float third = place == 1 ? -c : c;
  const float fourth = place == 0 ? -d : d;
  return ((first + second) + third) + fourth;
}

/// One radix-4 pass whose four values lie in four lanes that differ in two neighbouring lane bits,
/// the lower being bit `shift`.
__device__ inline void rotate_across_lanes(float (&values)[kEach], int shift) {
  const int lane = lane_of_thread();
  const int place = (lane >> shift) & 3;
  const int base = lane & ~(3 << shift);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const float a = __shfl_sync(kAllLanes, values[i], base);
    const float b = __shfl_sync(kAllLanes, values[i], base | (1 << shift));
    const float c = __shfl_sync(kAllLanes, values[i], base | (2 << shift));
    const float d = __shfl_sync(kAllLanes, values[i], base | (3 << shift));
    values[i] = butterfly(place, a, b, c, d);
  }
}

/// Rotates a chunk over groups of `group` (4, 16, 64 or 256) values.
__device__ inline void rotate_chunk(float (&values)[kEach], int group, float norm) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float* four = values + 4 * half;
    const float a = four[0];
    const float b = four[1];
    const float c = four[2];
    const float d = four[3];
#pragma unroll
    for (int place = 0; place < 4; ++place) {
      four[place] = butterfly(place, a, b, c, d);
    }
  }
  if (group > 4) {  // stride 4 is one lane
    rotate_across_lanes(values, 0);
  }
  if (group > 16) {  // stride 16 is four lanes
    rotate_across_lanes(values, 2);
  }
  if (group > 64) {  // stride 64 is half a warp, 128 the other four registers
    const int upper = lane_of_thread() >> 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float low = __shfl_xor_sync(kAllLanes, values[i], 16);
      const float high = __shfl_xor_sync(kAllLanes, values[i + 4], 16);
      const float a = upper == 0 ? values[i] : low;
      const float b = upper == 0 ? low : values[i];
      const float c = upper == 0 ? values[i + 4] : high;
      const float d = upper == 0 ? high : values[i + 4];
      values[i] = butterfly(upper, a, b, c, d);
      values[i + 4] = butterfly(upper + 2, a, b, c, d);
    }
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    values[i] *= norm;
  }
}

/// Rotates the row in registers, finds its peak, writes codes and scale. Shared by the kernels
/// below; all threads of the block call it.
template <int kChunks>
__device__ void finish_row(std::int8_t* out, float* scale, float (&values)[kChunks][kEach],
                           std::int64_t size, int group, float norm, unsigned* of_warp) {
  constexpr unsigned kInfinity = 0x7F800000;
  unsigned bits = 0;
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    if (column_of(j, 0) - 4 * lane_of_thread() >= size) {
      break;  // the whole warp: nothing of this chunk and those after it is in the row
    }
    if (group != 0) {
      rotate_chunk(values[j], group, norm);
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      bits = max(bits, __float_as_uint(values[j][i]) & 0x7FFFFFFFU);
    }
  }
  const unsigned peak =
      block_reduce(bits, of_warp, [](unsigned a, unsigned b) { return a > b ? a : b; });
  const bool finite = peak < kInfinity;
  float step = fmaxf(__fdiv_rn(__uint_as_float(peak), 127.0F), __uint_as_float(1));
  step = peak == 0 ? 1.0F : step;
  if (threadIdx.x == 0) {
    *scale = finite ? step : nanf("");
  }
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t column = column_of(j, half);
      if (column >= size) {
        continue;
      }
      std::uint32_t packed = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float code = fminf(fmaxf(__fdiv_rn(values[j][4 * half + i], step), -127.0F), 127.0F);
        const int whole = finite ? static_cast<int>(rintf(code)) : 0;
        packed |= (static_cast<std::uint32_t>(whole) & 0xFFU) << (8 * i);
      }
      std::int8_t* target = out + column;
      if (column + 4 <= size && reinterpret_cast<std::uintptr_t>(target) % 4 == 0) {
        *reinterpret_cast<std::uint32_t*>(target) = packed;
      } else {
        for (int i = 0; i < 4 && column + i < size; ++i) {
          target[i] = static_cast<std::int8_t>((packed >> (8 * i)) & 0xFFU);
        }
      }
    }
  }
}

/// x as it is.
struct PlainRows {
  const float* x;
  std::int64_t stride;
  __device__ float4 load(std::int64_t row, std::int64_t column, std::int64_t size) const {
    return load_four(x + row * stride, column, size);
  }
};

/// silu(gate) · value.
struct SiluMulRows {
  const float* gate;
  std::int64_t gate_stride;
  const float* value;
  std::int64_t value_stride;
  __device__ float4 load(std::int64_t row, std::int64_t column, std::int64_t size) const {
    const float4 g = load_four(gate + row * gate_stride, column, size);
    const float4 v = load_four(value + row * value_stride, column, size);
    return make_float4(silu_of(g.x) * v.x, silu_of(g.y) * v.y, silu_of(g.z) * v.z,
                       silu_of(g.w) * v.w);
  }
};

// Moves 5 bytes a value (4 read, 1 written), or 9 from a gate and a value. At 37,966 rows: 5376
// wide 1.02 GB, 7168 wide 1.36 GB, 14336 wide from two halves 4.90 GB (f32 rows; half of the read
// part once activations are bf16). Memory should bound it; the rotation costs 72 shuffles for 256
// values a warp, about as many cycles as the loads take on a card of 4.8 TB/s, and hides behind
// them only with several blocks a multiprocessor.
template <int kChunks, typename Rows>
__global__ void __launch_bounds__(kWarp* kMaxWarps)
    quantize_kernel(std::int8_t* out, float* scale, Rows rows, std::int64_t size, int group,
                    float norm) {
  __shared__ unsigned of_warp[kMaxWarps];
  const std::int64_t row = blockIdx.x;
  float values[kChunks][kEach];
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t column = column_of(j, half);
      float4 four = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      if (column < size) {
        four = rows.load(row, column, size);
      }
      values[j][4 * half] = four.x;
      values[j][4 * half + 1] = four.y;
      values[j][4 * half + 2] = four.z;
      values[j][4 * half + 3] = four.w;
    }
  }
  finish_row(out + row * size, scale + row, values, size, group, norm, of_warp);
}

// As above with 4 bytes read; weight and the few table rows stay in L2. The row is read once: the
// squares are summed from registers, in double, one FMA a value.
template <int kChunks>
__global__ void __launch_bounds__(kWarp* kMaxWarps)
    modulated_quantize_kernel(std::int8_t* out, float* scale, const float* x, const float* weight,
                              const float* shift, std::int64_t shift_stride, const float* gain,
                              std::int64_t gain_stride, const std::int32_t* index,
                              std::int64_t table_rows, std::int64_t size, float eps, int group,
                              float norm) {
  __shared__ unsigned of_warp[kMaxWarps];
  __shared__ double squares_of_warp[kMaxWarps];
  const std::int64_t row = blockIdx.x;
  const float* source = x + row * size;
  const std::int64_t entry = index[row];
  const bool stray = entry < 0 || entry >= table_rows;  // the row becomes NaN, as in the plain norm
  const float* row_shift = shift + (stray ? 0 : entry * shift_stride);
  const float* row_gain = gain + (stray ? 0 : entry * gain_stride);
  float values[kChunks][kEach];
  double squares = 0.0;
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t column = column_of(j, half);
      float4 four = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      if (column < size) {
        four = load_four(source, column, size);
      }
      float* target = values[j] + 4 * half;
      target[0] = four.x;
      target[1] = four.y;
      target[2] = four.z;
      target[3] = four.w;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        squares += static_cast<double>(target[i]) * static_cast<double>(target[i]);
      }
    }
  }
  const double mean =
      block_reduce(squares, squares_of_warp, [](double a, double b) { return a + b; }) /
      static_cast<double>(size);
  const auto factor = static_cast<float>(1.0 / sqrt(mean + static_cast<double>(eps)));
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t column = column_of(j, half);
      if (column >= size) {
        continue;
      }
      const float4 w = load_four(weight, column, size);
      const float4 g = load_four(row_gain, column, size);
      const float4 s = load_four(row_shift, column, size);
      float* target = values[j] + 4 * half;
      target[0] = target[0] * factor * w.x * (1.0F + g.x) + s.x;
      target[1] = target[1] * factor * w.y * (1.0F + g.y) + s.y;
      target[2] = target[2] * factor * w.z * (1.0F + g.z) + s.z;
      target[3] = target[3] * factor * w.w * (1.0F + g.w) + s.w;
      target[0] = stray ? nanf("") : target[0];
    }
  }
  finish_row(out + row * size, scale + row, values, size, group, norm, of_warp);
}

/// Rows of up to 8192 values take two chunks a warp (the widths 5376 and 7168 of the full model),
/// wider ones four (14336). Few warps with much in registers read ahead further than many with
/// little.
constexpr int kFewChunks = 2;

unsigned threads_for(std::int64_t size, int chunks) {
  return static_cast<unsigned>(kWarp * div_up(div_up(size, kChunk), chunks));
}

float norm_of(std::int64_t group) {
  return group == 0 ? 1.0F : 1.0F / std::sqrt(static_cast<float>(group));
}

void require_fit(std::int64_t size, std::int64_t group) {
  if (!fits_rotate_quantize(size, group)) {
    throw InternalError("fused rows on CUDA: " + std::to_string(size) + " columns in groups of " +
                        std::to_string(group) +
                        ", wanted at most 16384 columns in groups of at most 256");
  }
}

/// Calls body(std::integral_constant<int, chunks>) for the number of chunks a warp.
template <typename Body>
void with_chunks(std::int64_t size, const Body& body) {
  if (size <= std::int64_t{kChunk} * kFewChunks * kMaxWarps) {
    body(std::integral_constant<int, kFewChunks>());
  } else {
    body(std::integral_constant<int, kMaxChunks>());
  }
}

template <typename Rows>
void launch_quantize(const char* op, OpContext& ctx, TensorView out, TensorView scale,
                     const Rows& rows, std::int64_t group) {
  const std::int64_t size = out.dim(1);
  require_fit(size, group);
  with_chunks(size, [&](auto chunks) {
    launch(op, ctx, out, dim3(grid_x(out.dim(0))), dim3(threads_for(size, chunks())),
           quantize_kernel<chunks(), Rows>, out.as<std::int8_t>(), scale.f32(), rows, size,
           static_cast<int>(group), norm_of(group));
  });
}

}  // namespace

bool fits_rotate_quantize(std::int64_t columns, std::int64_t group) {
  return columns <= std::int64_t{kChunk} * kMaxChunks * kMaxWarps && group <= kChunk;
}

void rotate_quantize_rows(OpContext& ctx, TensorView out, TensorView scale, ConstTensorView x,
                          std::int64_t group) {
  launch_quantize("rotate_quantize_rows", ctx, out, scale, PlainRows{x.f32(), x.stride(0)}, group);
}

void silu_mul_quantize(OpContext& ctx, TensorView out, TensorView scale, ConstTensorView gate,
                       ConstTensorView value, std::int64_t group) {
  launch_quantize("silu_mul_quantize", ctx, out, scale,
                  SiluMulRows{gate.f32(), gate.stride(0), value.f32(), value.stride(0)}, group);
}

void modulated_rms_norm_quantize(OpContext& ctx, TensorView out, TensorView scale,
                                 ConstTensorView x, ConstTensorView weight, ConstTensorView shift,
                                 ConstTensorView gain, ConstTensorView index, float eps,
                                 std::int64_t group) {
  const std::int64_t size = out.dim(1);
  require_fit(size, group);
  with_chunks(size, [&](auto chunks) {
    launch("modulated_rms_norm_quantize", ctx, out, dim3(grid_x(out.dim(0))),
           dim3(threads_for(size, chunks())), modulated_quantize_kernel<chunks()>,
           out.as<std::int8_t>(), scale.f32(), x.f32(), weight.f32(), shift.f32(), shift.stride(0),
           gain.f32(), gain.stride(0), index.as<std::int32_t>(), shift.dim(0), size, eps,
           static_cast<int>(group), norm_of(group));
  });
}

}  // namespace miniacc::ops::cuda
