#include "kernels/cuda/hopper/attention.h"

#include "kernels/cuda/hopper/wgmma.cuh"
#include "kernels/cuda/launch.cuh"

namespace miniacc::ops::cuda::hopper {
namespace {

constexpr int kDim = 128;
constexpr int kTileKeys = 128;
constexpr int kTileBytes = kTileKeys * kDim;  // of k, and of v
constexpr int kGroupRows = 64;                // queries a consumer warpgroup
constexpr int kGroupBytes = kGroupRows * kDim;
constexpr int kGroupThreads = 128;
constexpr int kStages = 4;
constexpr int kTileScales = 8;  // of k a tile: 4 for the first 64 keys, 4 for the others
constexpr int kStepBytes = 32;  // of every row, in one instruction
constexpr std::size_t kAlignment = 1024;
constexpr unsigned kAllLanes = 0xFFFFFFFF;
constexpr float kLog2E = 1.44269504F;
constexpr float kNumeratorLog2 = 8.80735492F;  // log2 448: the largest numerator of a tile is 448
constexpr std::int32_t kMasked = -0x7FFFFFFF - 1;
// A score plus the first is, read as a float, the score plus the second, exactly (|score| < 2^22);
// its offset then goes into the addition that exp2 needs anyway, and no conversion instruction is
// left, which would run at exp2's rate on exp2's pipe.
constexpr std::int32_t kFloatBits = 0x4B400000;
constexpr float kFloatOffset = 12582912.0F;

struct Arguments {
  const unsigned char* q;  ///< [heads, padded q rows, 128] i8
  const unsigned char* k;  ///< [kv_heads, tiles, 128, 128] i8
  const unsigned char* v;  ///< [kv_heads, tiles, 128, 128] e4m3
  const float* q_scale;    ///< [heads, q_rows]
  const float* k_scale;    ///< [kv_heads, tiles, 8]
  const float* v_scale;    ///< [kv_heads, 128]
  float* out;              ///< head h of row r begins at out + r·out_stride + h·head_dim
  std::int64_t out_stride;
  std::int64_t q_rows;
  std::int64_t padded_q_rows;
  std::int64_t kv_rows;
  std::int64_t heads_per_kv;
  int head_dim;
  float scale;
  bool pairs;  ///< every pair of out's columns is 8-byte aligned
};

template <int kConsumers>
struct Shared {
  unsigned char k[kStages][kTileBytes];
  unsigned char v[kStages][kTileBytes];
  unsigned char q[kConsumers][kGroupBytes];
  float k_scale[kStages][kTileScales];
  Barrier k_full[kStages];
  Barrier k_empty[kStages];
  Barrier v_full[kStages];
  Barrier v_empty[kStages];
  Barrier q_full;
};

/// Counts through the stages: which one, and which parity its phase has.
struct Stage {
  int index = 0;
  int parity = 0;
  __device__ void advance() {
    if (++index == kStages) {
      index = 0;
      parity ^= 1;
    }
  }
};

template <int kConsumers>
__device__ void produce(Shared<kConsumers>& shared, const Arguments& args, int tiles) {
  const std::int64_t first_query = static_cast<std::int64_t>(blockIdx.x) * kConsumers * kGroupRows;
  const std::int64_t head = blockIdx.y;
  const std::int64_t kv_head = head / args.heads_per_kv;
  const unsigned char* q = args.q + (head * args.padded_q_rows + first_query) * kDim;
  const unsigned char* k = args.k + kv_head * tiles * kTileBytes;
  const unsigned char* v = args.v + kv_head * tiles * kTileBytes;
  const float* k_scale = args.k_scale + kv_head * tiles * kTileScales;
  const std::int64_t left = (args.padded_q_rows - first_query) / kGroupRows;
  const int groups = left < kConsumers ? static_cast<int>(left) : kConsumers;
  shared.q_full.expect(groups * kGroupBytes);
  for (int group = 0; group < groups; ++group) {
    bulk_copy(shared.q[group], q + group * kGroupBytes, kGroupBytes, shared.q_full);
  }
  Stage stage;
  for (int tile = tiles - 1; tile >= 0; --tile) {
    constexpr int kScaleBytes = kTileScales * sizeof(float);
    const int at = stage.index;
    shared.k_empty[at].wait(stage.parity ^ 1);
    shared.k_full[at].expect(kTileBytes + kScaleBytes);
    bulk_copy(shared.k[at], k + static_cast<std::int64_t>(tile) * kTileBytes, kTileBytes,
              shared.k_full[at]);
    bulk_copy(shared.k_scale[at], k_scale + static_cast<std::int64_t>(tile) * kTileScales,
              kScaleBytes, shared.k_full[at]);
    shared.v_empty[at].wait(stage.parity ^ 1);
    shared.v_full[at].expect(kTileBytes);
    bulk_copy(shared.v[at], v + static_cast<std::int64_t>(tile) * kTileBytes, kTileBytes,
              shared.v_full[at]);
    stage.advance();
  }
}

/// Issues scores = q·k of a tile; done after the commit and wait of the caller.
__device__ inline void issue_scores(std::int32_t (&scores)[64], std::uint64_t q, std::uint64_t k) {
  constexpr int kNext = kStepBytes / 16;
  wgmma_s8<false>(scores, q, k);
  wgmma_s8<true>(scores, q + kNext, k + kNext);
  wgmma_s8<true>(scores, q + 2 * kNext, k + 2 * kNext);
  wgmma_s8<true>(scores, q + 3 * kNext, k + 3 * kNext);
}

/// The same for sums = numerators·v.
__device__ inline void issue_values(float (&sums)[64], const std::uint32_t (&numerators)[16],
                                    std::uint64_t v) {
  constexpr int kNext = kStepBytes / 16;
  wgmma_e4m3<false>(sums, numerators, v);
  wgmma_e4m3<true>(sums, numerators + 4, v + kNext);
  wgmma_e4m3<true>(sums, numerators + 8, v + 2 * kNext);
  wgmma_e4m3<true>(sums, numerators + 12, v + 3 * kNext);
}

/// What a lane knows of its two rows (row 0: 16w + g, row 1: 8 further).
struct Rows {
  float factor[2];               // scale · log2 e · q_scale
  float peak[2];                 // of the scores so far, base 2
  float sum[2] = {0.0F, 0.0F};   // of this lane's numerators, relative to the peak
  float fade[2] = {0.0F, 0.0F};  // what the last tile makes of the sums before it
  float gain[2] = {0.0F, 0.0F};  // and what its own sums count
};

/// Turns a tile's scores into numerators, f32 bits in place: 448 · 2^(score - the tile's largest of
/// that row). Only the first `keys` of the tile count where kTail.
template <bool kTail>
__device__ inline void softmax_tile(std::int32_t (&scores)[64], Rows& rows,
                                    const float (&k_scale)[2], int keys) {
  const float infinity = __int_as_float(0x7F800000);
  if constexpr (kTail) {
    const int pair = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      if (8 * (i / 4) + 2 * pair + i % 2 >= keys) {
        scores[i] = kMasked;
      }
    }
  }
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float factor[2];
    float largest = -infinity;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      factor[half] = rows.factor[row] * k_scale[half];
      std::int32_t most = kMasked;
#pragma unroll
      for (int i = 32 * half + 2 * row; i < 32 * half + 32; i += 4) {
        most = max3(most, scores[i], scores[i + 1]);
      }
      const float scaled = static_cast<float>(most) * factor[half];
      largest = fmaxf(largest, kTail && most == kMasked ? -infinity : scaled);
    }
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
    const float next = fmaxf(rows.peak[row], largest);
    rows.fade[row] = exp2_approx(rows.peak[row] - next);
    rows.gain[row] = exp2_approx(largest - next);
    rows.peak[row] = next;
    const float offset[2] = {fmaf(-kFloatOffset, factor[0], kNumeratorLog2 - largest),
                             fmaf(-kFloatOffset, factor[1], kNumeratorLog2 - largest)};
    float added[2] = {0.0F, 0.0F};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 32 * half + 2 * row; i < 32 * half + 32; i += 4) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const std::int32_t score = scores[i + j];
          const float wide = __int_as_float(score + kFloatBits);
          float numerator = exp2_approx(fmaf(wide, factor[half], offset[half]));
          if (kTail && score == kMasked) {
            numerator = 0.0F;
          }
          added[j] += numerator;
          scores[i + j] = __float_as_int(numerator);
        }
      }
    }
    rows.sum[row] = rows.sum[row] * rows.fade[row] + (added[0] + added[1]) * rows.gain[row];
  }
}

/// Numerators as the A operand: four columns of a lane that v's order of keys makes neighbours.
__device__ inline void pack_numerators(std::uint32_t (&packed)[16],
                                       const std::int32_t (&numerators)[64]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {  // 16 keys
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int at = 8 * i + 2 * row;
      packed[2 * i + row] =
          pack_e4m3(__int_as_float(numerators[at]), __int_as_float(numerators[at + 1]),
                    __int_as_float(numerators[at + 4]), __int_as_float(numerators[at + 5]));
    }
  }
}

/// out ← out · fade + sums · gain: the instruction's short sums end here, after one tile.
__device__ inline void add_tile(float (&out)[64], const float (&sums)[64], const float (&fade)[2],
                                const float (&gain)[2]) {
  if (__any_sync(kAllLanes, fade[0] != 1.0F || fade[1] != 1.0F)) {
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      out[i] *= fade[i % 4 / 2];
    }
  }
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    out[i] = fmaf(sums[i], gain[i % 4 / 2], out[i]);
  }
}

template <int kConsumers, bool kOverlap, bool kPingPong>
__device__ void consume(Shared<kConsumers>& shared, const Arguments& args, int tiles) {
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  const int warp = static_cast<int>(threadIdx.x) % kGroupThreads / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int pair = lane % 4;
  const std::int64_t head = blockIdx.y;
  const std::int64_t kv_head = head / args.heads_per_kv;
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.x) * kConsumers + group) * kGroupRows + 16 * warp +
      lane / 4;
  Rows rows;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const std::int64_t query = first + 8 * row;
    rows.factor[row] = args.scale * kLog2E *
                       (query < args.q_rows ? args.q_scale[head * args.q_rows + query] : 0.0F);
    rows.peak[row] = -__int_as_float(0x7F800000);
  }
  const std::uint64_t q = operand(shared_address(shared.q[group]));
  const std::uint64_t k = operand(shared_address(shared.k[0]));
  const std::uint64_t v = operand(shared_address(shared.v[0]));
  constexpr int kTileStep = kTileBytes / 16;
  std::int32_t scores[64];
  float sums[64];
  float out[64] = {};
  std::uint32_t numerators[16];
  float k_scale[2];
  Stage k_stage;
  Stage v_stage;

  // Turn t of group g waits for turn t of the group before it, its first for nobody's.
  constexpr int kFirstName = 1;  // 0 is __syncthreads
  const auto take_turn = [&] {
    if constexpr (kPingPong) {
      named_sync(kFirstName + group, 2 * kGroupThreads);
    }
  };
  const auto pass_turn = [&](bool last) {
    if constexpr (kPingPong) {
      if (!last || group == 0) {
        named_arrive(kFirstName + (group ^ 1), 2 * kGroupThreads);
      }
    }
  };
  const auto wait_for_keys = [&] {
    shared.k_full[k_stage.index].wait(k_stage.parity);
    k_scale[0] = shared.k_scale[k_stage.index][pair];
    k_scale[1] = shared.k_scale[k_stage.index][4 + pair];
  };
  const auto release_keys = [&] {
    if (lane == 0) {
      shared.k_empty[k_stage.index].arrive();
    }
    k_stage.advance();
  };
  const auto release_values = [&] {
    if (lane == 0) {
      shared.v_empty[v_stage.index].arrive();
    }
    v_stage.advance();
  };
  if constexpr (kPingPong) {
    if (group == 1 && tiles > 1) {
      named_arrive(kFirstName, 2 * kGroupThreads);
    }
  }

  shared.q_full.wait(0);
  wait_for_keys();
  wgmma_fence();
  issue_scores(scores, q, k);
  wgmma_commit();
  wgmma_wait<0>();
  pin(scores);
  release_keys();
  softmax_tile<true>(
      scores, rows, k_scale,
      static_cast<int>(args.kv_rows - static_cast<std::int64_t>(tiles - 1) * kTileKeys));
  pack_numerators(numerators, scores);
  for (int tile = 1; tile < tiles; ++tile) {
    if constexpr (kOverlap) {
      wait_for_keys();
      shared.v_full[v_stage.index].wait(v_stage.parity);
      take_turn();
      wgmma_fence();
      issue_scores(scores, q, k + static_cast<std::uint64_t>(k_stage.index * kTileStep));
      wgmma_commit();
      issue_values(sums, numerators, v + static_cast<std::uint64_t>(v_stage.index * kTileStep));
      wgmma_commit();
      pass_turn(tile + 1 == tiles);
      wgmma_wait<1>();
      pin(scores);
      release_keys();
      const float fade[2] = {rows.fade[0], rows.fade[1]};
      const float gain[2] = {rows.gain[0], rows.gain[1]};
      softmax_tile<false>(scores, rows, k_scale, kTileKeys);
      wgmma_wait<0>();
      pin(sums);
      pin(numerators);
      release_values();
      add_tile(out, sums, fade, gain);
    } else {
      shared.v_full[v_stage.index].wait(v_stage.parity);
      wgmma_fence();
      issue_values(sums, numerators, v + static_cast<std::uint64_t>(v_stage.index * kTileStep));
      wgmma_commit();
      wgmma_wait<0>();
      pin(sums);
      release_values();
      add_tile(out, sums, rows.fade, rows.gain);
      wait_for_keys();
      wgmma_fence();
      issue_scores(scores, q, k + static_cast<std::uint64_t>(k_stage.index * kTileStep));
      wgmma_commit();
      wgmma_wait<0>();
      pin(scores);
      release_keys();
      softmax_tile<false>(scores, rows, k_scale, kTileKeys);
    }
    pack_numerators(numerators, scores);
  }
  shared.v_full[v_stage.index].wait(v_stage.parity);
  wgmma_fence();
  issue_values(sums, numerators, v + static_cast<std::uint64_t>(v_stage.index * kTileStep));
  wgmma_commit();
  wgmma_wait<0>();
  pin(sums);
  add_tile(out, sums, rows.fade, rows.gain);

  const float* v_scale = args.v_scale + kv_head * kDim;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float total = rows.sum[row];
    total += __shfl_xor_sync(kAllLanes, total, 1);
    total += __shfl_xor_sync(kAllLanes, total, 2);
    const float inverse = 1.0F / total;
    const std::int64_t query = first + 8 * row;
    if (query >= args.q_rows) {
      continue;
    }
    float* target = args.out + query * args.out_stride + head * args.head_dim;
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d) {
      const int column = 8 * d + 2 * pair;
      const float one = out[4 * d + 2 * row] * inverse * v_scale[column];
      const float other = out[4 * d + 2 * row + 1] * inverse * v_scale[column + 1];
      if (args.pairs && column + 1 < args.head_dim) {
        *reinterpret_cast<float2*>(target + column) = make_float2(one, other);
      } else {
        if (column < args.head_dim) {
          target[column] = one;
        }
        if (column + 1 < args.head_dim) {
          target[column + 1] = other;
        }
      }
    }
  }
}

__device__ inline unsigned char* aligned_shared() {
  extern __shared__ __align__(1024) unsigned char miniacc_hopper_shared[];
  const std::uint32_t address = shared_address(miniacc_hopper_shared);
  return miniacc_hopper_shared + ((kAlignment - address % kAlignment) % kAlignment);
}

// Floor: as for flash_attention.cuh, 4·q_rows·kv_rows·128·heads operations, at 8192 a cycle and
// multiprocessor; q_rows·kv_rows·heads exp2 at 16: for a tile of 64 × 128 scores 512 cycles of
// either, which run beside each other. From L2: 32 KiB for every 64·kConsumers × 128 scores.
// A block: one warp that copies and kConsumers warpgroups that compute, 64 queries each. Keys
// arrive in tiles of 128, the last tile, the only one that may have a tail, first.
template <int kConsumers, bool kOverlap, bool kPingPong>
__global__ void __launch_bounds__((kConsumers + 1) * kGroupThreads, 1)
    attention_kernel(const Arguments args) {
  auto& shared = *reinterpret_cast<Shared<kConsumers>*>(aligned_shared());
  const int tiles = static_cast<int>((args.kv_rows + kTileKeys - 1) / kTileKeys);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      shared.k_full[stage].init(1);
      shared.v_full[stage].init(1);
      shared.k_empty[stage].init(kConsumers * kGroupThreads / kWarp);
      shared.v_empty[stage].init(kConsumers * kGroupThreads / kWarp);
    }
    shared.q_full.init(1);
    fence_barriers();
  }
  __syncthreads();
  if (threadIdx.x >= kConsumers * kGroupThreads) {
    fewer_registers<24>();
    if (threadIdx.x == kConsumers * kGroupThreads) {
      produce(shared, args, tiles);
    }
  } else {
    more_registers<kConsumers == 2 ? 240 : 160>();
    consume<kConsumers, kOverlap, kPingPong>(shared, args, tiles);
  }
}

template <int kConsumers, bool kOverlap, bool kPingPong>
void launch_schedule(OpContext& ctx, TensorView out, const Arguments& args) {
  launch_shared(
      "attention_int8", ctx, out,
      dim3(grid_x(div_up(args.q_rows, kConsumers * kGroupRows)), static_cast<unsigned>(out.dim(1))),
      dim3((kConsumers + 1) * kGroupThreads), sizeof(Shared<kConsumers>) + kAlignment,
      attention_kernel<kConsumers, kOverlap, kPingPong>, args);
}

/// Rows of 128 bytes that are swizzled already, to shared memory by ordinary stores.
__device__ inline void copy_plain(unsigned char* to, const unsigned char* from, int bytes) {
  for (int at = 16 * static_cast<int>(threadIdx.x); at < bytes; at += 16 * kGroupThreads) {
    *reinterpret_cast<uint4*>(to + at) = *reinterpret_cast<const uint4*>(from + at);
  }
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
  __syncthreads();
}

__device__ inline int sum_row(int i) {
  const int thread = static_cast<int>(threadIdx.x);
  return 16 * (thread / kWarp) + thread % kWarp / 4 + 8 * (i % 4 / 2);
}
__device__ inline int sum_column(int i) {
  return 8 * (i / 4) + 2 * (static_cast<int>(threadIdx.x) % 4) + i % 2;
}

__global__ void __launch_bounds__(kGroupThreads, 1)
    probe_scores_kernel(std::int32_t* scores, const unsigned char* q, const unsigned char* k) {
  unsigned char* shared = aligned_shared();
  copy_plain(shared, q, kGroupBytes);
  copy_plain(shared + kGroupBytes, k, kTileBytes);
  std::int32_t sums[64];
  wgmma_fence();
  issue_scores(sums, operand(shared_address(shared)),
               operand(shared_address(shared + kGroupBytes)));
  wgmma_commit();
  wgmma_wait<0>();
  pin(sums);
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    scores[sum_row(i) * kTileKeys + sum_column(i)] = sums[i];
  }
}

__global__ void __launch_bounds__(kGroupThreads, 1)
    probe_values_kernel(float* out, const float* numerators, const unsigned char* v) {
  unsigned char* shared = aligned_shared();
  copy_plain(shared, v, kTileBytes);
  std::int32_t wide[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    wide[i] = __float_as_int(numerators[sum_row(i) * kTileKeys + sum_column(i)]);
  }
  std::uint32_t packed[16];
  pack_numerators(packed, wide);
  float sums[64];
  wgmma_fence();
  issue_values(sums, packed, operand(shared_address(shared)));
  wgmma_commit();
  wgmma_wait<0>();
  pin(sums);
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    out[sum_row(i) * kDim + sum_column(i)] = sums[i];
  }
}

}  // namespace

bool attention_available(DeviceId device) {
  int major = 0;
  int minor = 0;
  miniacc::cuda::check(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.ordinal),
      "attention_int8: compute capability");
  miniacc::cuda::check(
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.ordinal),
      "attention_int8: compute capability");
  return major == 9 && minor == 0;
}

void attention_int8(OpContext& ctx, TensorView out, const QuantizedAttention& in, float scale,
                    AttentionSchedule schedule) {
  Arguments args = {};
  args.q = static_cast<const unsigned char*>(in.q.view().data);
  args.k = static_cast<const unsigned char*>(in.k.view().data);
  args.v = static_cast<const unsigned char*>(in.v.view().data);
  args.q_scale = in.q_scale.view().f32();
  args.k_scale = in.k_scale.view().f32();
  args.v_scale = in.v_scale.view().f32();
  args.out = out.f32();
  args.out_stride = out.stride(0);
  args.q_rows = out.dim(0);
  args.padded_q_rows = in.q.shape()[1];
  args.kv_rows = in.kv_rows;
  args.heads_per_kv = in.q.shape()[0] / in.k.shape()[0];
  args.head_dim = static_cast<int>(out.dim(2));
  args.scale = scale;
  args.pairs = out.stride(0) % 2 == 0 && out.dim(2) % 2 == 0 &&
               reinterpret_cast<std::uintptr_t>(out.data) % 8 == 0;
  switch (schedule) {
    case AttentionSchedule::kOverlapPingPong:
      launch_schedule<2, true, true>(ctx, out, args);
      return;
    case AttentionSchedule::kOverlap:
      launch_schedule<2, true, false>(ctx, out, args);
      return;
    case AttentionSchedule::kPlain:
      launch_schedule<2, false, false>(ctx, out, args);
      return;
    case AttentionSchedule::kPlainThree:
      launch_schedule<3, false, false>(ctx, out, args);
      return;
  }
}

void probe_scores(OpContext& ctx, TensorView scores, ConstTensorView q, ConstTensorView k) {
  launch_shared("probe_scores", ctx, scores, dim3(1), dim3(kGroupThreads),
                kGroupBytes + kTileBytes + kAlignment, probe_scores_kernel,
                scores.as<std::int32_t>(), static_cast<const unsigned char*>(q.data),
                static_cast<const unsigned char*>(k.data));
}

void probe_values(OpContext& ctx, TensorView sums, ConstTensorView numerators, ConstTensorView v) {
  launch_shared("probe_values", ctx, sums, dim3(1), dim3(kGroupThreads), kTileBytes + kAlignment,
                probe_values_kernel, sums.f32(), numerators.f32(),
                static_cast<const unsigned char*>(v.data));
}

}  // namespace miniacc::ops::cuda::hopper
