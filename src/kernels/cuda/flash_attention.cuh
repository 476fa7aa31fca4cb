#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/tile.cuh"

/// Attention in one pass over the keys for all cards from sm_80 on: scores and softmax numerators
/// stay in registers (Dao et al. 2022; Milakov & Gimelshein 2018 for the running maximum).
namespace miniacc::ops::cuda {

inline constexpr int kQueryTile = 128;  // queries a block
inline constexpr int kKeyTile = 64;

struct FlashArguments {
  const unsigned char* q;  ///< [heads, q_rows, kDim] bf16 or i8
  const unsigned char* k;  ///< [kv_heads, kv_rows, kDim], the same
  const unsigned char* v;  ///< [kv_heads, kv_rows, kDim] bf16 or f16
  const float* q_scale;    ///< i8 only: [heads, q_rows]
  const float* k_scale;    ///< i8 only: [kv_heads, key tiles, 4]
  const float* v_scale;    ///< i8 only: [kv_heads, kDim]
  float* out;              ///< head h of row r begins at out + r·out_stride + h·head_dim
  std::int64_t out_stride;
  std::int64_t q_rows;
  std::int64_t kv_rows;
  std::int64_t heads_per_kv;
  int head_dim;  ///< columns of out; those from here to kDim are padding, zeros in q, k, v
  float scale;
  bool causal;
  bool pairs;  ///< every pair of out's columns is 8-byte aligned
};

/// bf16 products of both kinds.
struct Bf16Attention {
  using Score = float;
  static constexpr bool kInt8 = false;
  static constexpr int kBytes = 2;  // a value of q or k
  static constexpr float kNumeratorLog2 = 0.0F;
  __device__ static void scores(Score (&d)[4], const std::uint32_t (&a)[4],
                                const std::uint32_t (&b)[2]) {
    ptx::mma_bf16(d, a, b);
  }
  __device__ static void values(float (&d)[4], const std::uint32_t (&a)[4],
                                const std::uint32_t (&b)[2]) {
    ptx::mma_bf16(d, a, b);
  }
  __device__ static std::uint32_t pack(float low, float high) { return ptx::pack_bf16(low, high); }
};

/// i8 scores; f16 numerators, the largest of a row so far being 2^14, so that those down to 2^-28
/// of it stay normal numbers (f16 ends at 65504).
struct Int8Attention {
  using Score = std::int32_t;
  static constexpr bool kInt8 = true;
  static constexpr int kBytes = 1;
  static constexpr float kNumeratorLog2 = 14.0F;
  __device__ static void scores(Score (&d)[4], const std::uint32_t (&a)[4],
                                const std::uint32_t (&b)[2]) {
    ptx::mma_s8(d, a, b);
  }
  __device__ static void values(float (&d)[4], const std::uint32_t (&a)[4],
                                const std::uint32_t (&b)[2]) {
    ptx::mma_f16(d, a, b);
  }
  __device__ static std::uint32_t pack(float low, float high) { return ptx::pack_f16(low, high); }
};

template <typename Arithmetic, int kDim, AttentionLayout kLayout>
struct FlashShape {
  static constexpr bool kShifted = kLayout == AttentionLayout::kShiftedHalves;
  static constexpr int kBands = kLayout == AttentionLayout::kTwoWideBlocks ? 2 : 1;
  static constexpr int kBlocks =
      kLayout == AttentionLayout::kTwoBlocks || kLayout == AttentionLayout::kTwoWideBlocks ? 2 : 1;
  static constexpr int kThreads = kQueryTile / (16 * kBands) * kWarp;
  static constexpr int kValueStages = kShifted ? 3 : 2;
  static constexpr int kRowBytes = kDim * Arithmetic::kBytes;
  static constexpr int kChunks = kRowBytes / kChunkBytes;
  static constexpr int kValueChunks = 2 * kDim / kChunkBytes;
  static constexpr int kQueryBytes = kQueryTile * kRowBytes;
  static constexpr int kKeyBytes = kKeyTile * kRowBytes;
  static constexpr int kValueBytes = kKeyTile * 2 * kDim;
  static constexpr int kSharedBytes = kQueryBytes + 2 * kKeyBytes + kValueStages * kValueBytes;
};

/// Starts the copy of rows [first, first + kRows) of a contiguous matrix, kRows rows of kChunks
/// 16-byte chunks, of which `rows` exist; the others become zeros. A whole tile's addresses are one
/// register and constants.
template <int kRows, int kChunks, int kThreads>
__device__ inline void copy_rows(unsigned char* tile, const unsigned char* source,
                                 std::int64_t first, std::int64_t rows) {
  constexpr int kRowBytes = kChunks * kChunkBytes;
  constexpr int kCopies = kRows * kChunks / kThreads;
  constexpr int kRowStep = kThreads / kChunks;  // rows from one copy of a thread to its next
  if (first + kRows > rows || kRowStep % 8 != 0 || kRows * kChunks % kThreads != 0) {
    copy_tile<kRows, kChunks, kThreads>(tile, source, kRowBytes, first, rows, kRowBytes);
    return;
  }
  const int thread = static_cast<int>(threadIdx.x);
  const unsigned char* from = source + first * kRowBytes + thread * kChunkBytes;
  unsigned char* to = tile + tile_offset<kChunks>(thread / kChunks, thread % kChunks);
#pragma unroll
  for (int i = 0; i < kCopies; ++i) {
    ptx::cp_async_16(to + i * kRowStep * kRowBytes, from + i * kRowStep * kRowBytes, true);
  }
}

// An i32 sum that starts here is, read as a float, 1.5·2^23 plus the sum, exactly, while the sum
// stays below 2^22: 128 products of at most 127² do. One subtraction then makes a float of it,
// where the conversion instruction runs at the slow rate of exp2.
inline constexpr std::int32_t kScoreOrigin = 0x4B400000;
inline constexpr float kScoreOriginFloat = 12582912.0F;

// Floor: 4·q_rows·kv_rows·kDim·heads operations in the two products (half under a causal mask) and
// q_rows·kv_rows·heads exp2, 16 a cycle and multiprocessor. At 37,966 rows, 56 heads of 128: 41.3
// TFLOP and 8.1e10 exp2 a block. From L2: K and V once for every 128 queries.
// A block works on 128 queries of one head, a warp on 16 or 32 of them: its scores (by 64 keys),
// numerators and sums never leave its registers. Tiles of K and V arrive by cp.async, the next K
// while the scores of this tile turn into numerators, the next V while this V is multiplied. Blocks
// of one head are neighbours in the grid, so that its K and V stay in L2.
// In shifted halves the upper half of the warps multiplies the values of a tile one tile late,
// beside the scores of the next: on every multiprocessor quarter one warp's softmax, which the
// tensor cores would wait for, runs beside the other's products.
template <typename Arithmetic, int kDim, AttentionLayout kLayout>
__global__ void __launch_bounds__(FlashShape<Arithmetic, kDim, kLayout>::kThreads,
                                  FlashShape<Arithmetic, kDim, kLayout>::kBlocks)
    flash_attention_kernel(FlashArguments args) {
  using Shape = FlashShape<Arithmetic, kDim, kLayout>;
  constexpr int kBands = Shape::kBands;
  constexpr int kChunks = Shape::kChunks;
  constexpr int kSteps = Shape::kRowBytes / 32;
  constexpr int kKeyBlocks = kKeyTile / 8;  // of the m16n8 instruction
  constexpr int kDimBlocks = kDim / 8;
  constexpr float kLog2E = 1.44269504F;
  constexpr unsigned kAllLanes = 0xFFFFFFFF;
  const float infinity = __int_as_float(0x7F800000);

  unsigned char* q_tile = ptx::dynamic_shared();
  unsigned char* k_tiles = q_tile + Shape::kQueryBytes;
  unsigned char* v_tiles = k_tiles + 2 * Shape::kKeyBytes;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int group = lane / 4;
  const int pair = lane % 4;
  const std::int64_t first_query = static_cast<std::int64_t>(blockIdx.x) * kQueryTile;
  const std::int64_t head = blockIdx.y;
  const std::int64_t kv_head = head / args.heads_per_kv;
  const unsigned char* q = args.q + head * args.q_rows * Shape::kRowBytes;
  const unsigned char* k = args.k + kv_head * args.kv_rows * Shape::kRowBytes;
  const unsigned char* v = args.v + kv_head * args.kv_rows * 2 * kDim;
  const int first_row = 16 * kBands * warp;  // in the block's queries
  // Band b: rows 2b and 2b + 1 of this lane.
  const auto query_of = [&](int row) { return first_query + first_row + 8 * row + group; };

  std::int64_t keys = args.kv_rows;
  if (args.causal && first_query + kQueryTile < keys) {
    keys = first_query + kQueryTile;
  }
  const std::int64_t tiles = (keys + kKeyTile - 1) / kKeyTile;
  const auto value_tile_of = [&](std::int64_t tile) {
    return v_tiles + static_cast<int>(tile) % Shape::kValueStages * Shape::kValueBytes;
  };
  const auto copy_keys = [&](std::int64_t tile) {
    if (tile < tiles) {
      copy_rows<kKeyTile, kChunks, Shape::kThreads>(k_tiles + (tile & 1) * Shape::kKeyBytes, k,
                                                    tile * kKeyTile, args.kv_rows);
    }
    ptx::cp_async_commit();
  };
  const auto copy_values = [&](std::int64_t tile) {
    if (tile < tiles) {
      copy_rows<kKeyTile, Shape::kValueChunks, Shape::kThreads>(value_tile_of(tile), v,
                                                                tile * kKeyTile, args.kv_rows);
    }
    ptx::cp_async_commit();
  };
  copy_rows<kQueryTile, kChunks, Shape::kThreads>(q_tile, q, first_query, args.q_rows);
  copy_keys(0);  // closes the group of the queries, too
  copy_values(0);
  ptx::cp_async_wait<1>();
  __syncthreads();
  // A block alone keeps its queries in registers; two have no room for them.
  constexpr bool kKeepQueries = Shape::kBlocks == 1;
  std::uint32_t q_fragments[kKeepQueries ? kSteps : 1][kBands][4];
  const auto load_queries = [&](std::uint32_t(&fragments)[kBands][4], int step) {
#pragma unroll
    for (int band = 0; band < kBands; ++band) {
      load_a<kChunks>(fragments[band], q_tile, first_row + 16 * band, step, lane);
    }
  };
  if constexpr (kKeepQueries) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      load_queries(q_fragments[step], step);
    }
  }

  float row_factor[2 * kBands];
  float peak[2 * kBands];      // of the scores so far, base 2
  float sum[2 * kBands] = {};  // of this lane's numerators
  float out[kBands][kDimBlocks][4] = {};
#pragma unroll
  for (int row = 0; row < 2 * kBands; ++row) {
    row_factor[row] = args.scale * kLog2E;
    peak[row] = -infinity;
    if constexpr (Arithmetic::kInt8) {
      row_factor[row] *=
          query_of(row) < args.q_rows ? args.q_scale[head * args.q_rows + query_of(row)] : 0.0F;
    }
  }

  // Numerators of a tile as A fragments of 16 keys: two m16n8 results side by side.
  std::uint32_t numerators[kKeyTile / 16][kBands][4];

  // The scale of this lane's keys, read a tile ahead: the copies of a tile hide it.
  const auto key_scale_of = [&](std::int64_t tile) {
    if constexpr (Arithmetic::kInt8) {
      const std::int64_t all_tiles = (args.kv_rows + kKeyTile - 1) / kKeyTile;
      return tile < tiles ? args.k_scale[(kv_head * all_tiles + tile) * 4 + pair] : 0.0F;
    } else {
      return 1.0F;
    }
  };
  float next_key_scale = key_scale_of(0);

  const auto score_tile_as = [&](std::int64_t tile, auto masked) {
    constexpr bool kMasked = decltype(masked)::value;
    const float key_factor = next_key_scale;
    next_key_scale = key_scale_of(tile + 1);
    const unsigned char* k_tile = k_tiles + (tile & 1) * Shape::kKeyBytes;
    float scores[kBands][kKeyBlocks][4];
    {
      typename Arithmetic::Score products[kBands][kKeyBlocks][4];
#pragma unroll
      for (int band = 0; band < kBands; ++band) {
#pragma unroll
        for (int j = 0; j < kKeyBlocks; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            products[band][j][i] = Arithmetic::kInt8 ? kScoreOrigin : 0;
          }
        }
      }
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        auto& queries = q_fragments[kKeepQueries ? step : 0];
        if constexpr (!kKeepQueries) {
          load_queries(queries, step);
        }
#pragma unroll
        for (int j = 0; j < kKeyBlocks / 2; ++j) {
          std::uint32_t b[4];
          load_b_pair<kChunks>(b, k_tile, 16 * j, step, lane);
          const std::uint32_t first[2] = {b[0], b[1]};
          const std::uint32_t second[2] = {b[2], b[3]};
#pragma unroll
          for (int band = 0; band < kBands; ++band) {
            Arithmetic::scores(products[band][2 * j], queries[band], first);
            Arithmetic::scores(products[band][2 * j + 1], queries[band], second);
          }
        }
      }
#pragma unroll
      for (int band = 0; band < kBands; ++band) {
#pragma unroll
        for (int j = 0; j < kKeyBlocks; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if constexpr (Arithmetic::kInt8) {
              scores[band][j][i] = __int_as_float(products[band][j][i]) - kScoreOriginFloat;
            } else {
              scores[band][j][i] = products[band][j][i];
            }
          }
        }
      }
    }

    if constexpr (kMasked) {
      const int keys_here = static_cast<int>(args.kv_rows - tile * kKeyTile);
#pragma unroll
      for (int band = 0; band < kBands; ++band) {
#pragma unroll
        for (int j = 0; j < kKeyBlocks; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int key = 8 * j + 2 * pair + (i & 1);
            const auto last = static_cast<int>(query_of(2 * band + i / 2) - tile * kKeyTile);
            if (key >= keys_here || (args.causal && key > last)) {
              scores[band][j][i] = -infinity;
            }
          }
        }
      }
    }

    float fade[2 * kBands];
#pragma unroll
    for (int row = 0; row < 2 * kBands; ++row) {
      auto& mine = scores[row / 2];
      const int column = 2 * (row % 2);
      const float factor = row_factor[row] * key_factor;
      float largest = -infinity;
#pragma unroll
      for (int j = 0; j < kKeyBlocks; ++j) {
        largest = fmaxf(largest, fmaxf(mine[j][column], mine[j][column + 1]));
      }
      // A factor may be 0 or NaN: minus infinity must stay what it is.
      largest = largest == -infinity ? -infinity : largest * factor;
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
      const float next = fmaxf(peak[row], largest);
      const float origin = next == -infinity ? 0.0F : next;
      fade[row] = ptx::exp2_approx(peak[row] - origin);
      peak[row] = next;
      const float offset = Arithmetic::kNumeratorLog2 - origin;
      float added = 0.0F;
#pragma unroll
      for (int j = 0; j < kKeyBlocks; ++j) {
#pragma unroll
        for (int i = column; i < column + 2; ++i) {
          const float score = mine[j][i];
          float numerator = ptx::exp2_approx(fmaf(score, factor, offset));
          if (kMasked && score == -infinity) {
            numerator = 0.0F;
          }
          mine[j][i] = numerator;
          added += numerator;
        }
      }
      sum[row] = sum[row] * fade[row] + added;
    }
    // Few tiles after the first ones have a larger score than all before them.
    bool fades = false;
#pragma unroll
    for (int row = 0; row < 2 * kBands; ++row) {
      fades = fades || fade[row] != 1.0F;
    }
    if (__any_sync(kAllLanes, static_cast<int>(fades)) != 0) {
#pragma unroll
      for (int band = 0; band < kBands; ++band) {
#pragma unroll
        for (int d = 0; d < kDimBlocks; ++d) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            out[band][d][i] *= fade[2 * band + i / 2];
          }
        }
      }
    }

#pragma unroll
    for (int step = 0; step < kKeyTile / 16; ++step) {
#pragma unroll
      for (int band = 0; band < kBands; ++band) {
        const auto& mine = scores[band];
        auto& packed = numerators[step][band];
        packed[0] = Arithmetic::pack(mine[2 * step][0], mine[2 * step][1]);
        packed[1] = Arithmetic::pack(mine[2 * step][2], mine[2 * step][3]);
        packed[2] = Arithmetic::pack(mine[2 * step + 1][0], mine[2 * step + 1][1]);
        packed[3] = Arithmetic::pack(mine[2 * step + 1][2], mine[2 * step + 1][3]);
      }
    }
  };

  // Keys that a row must not see: beyond the last one, or after it under a causal mask.
  const auto score_tile = [&](std::int64_t tile) {
    const std::int64_t end = (tile + 1) * kKeyTile;
    if (end > args.kv_rows || (args.causal && end > first_query + first_row)) {
      score_tile_as(tile, std::true_type{});
    } else {
      score_tile_as(tile, std::false_type{});
    }
  };

  const auto value_tile = [&](std::int64_t tile) {
    const unsigned char* v_tile = value_tile_of(tile);
#pragma unroll
    for (int step = 0; step < kKeyTile / 16; ++step) {
#pragma unroll
      for (int d = 0; d < kDimBlocks / 2; ++d) {
        std::uint32_t b[4];
        ptx::ldmatrix_x4_trans(b, v_tile + tile_offset<Shape::kValueChunks>(16 * step + (lane & 15),
                                                                            2 * d + (lane >> 4)));
        const std::uint32_t first[2] = {b[0], b[1]};
        const std::uint32_t second[2] = {b[2], b[3]};
#pragma unroll
        for (int band = 0; band < kBands; ++band) {
          Arithmetic::values(out[band][2 * d], numerators[step][band], first);
          Arithmetic::values(out[band][2 * d + 1], numerators[step][band], second);
        }
      }
    }
  };

  if constexpr (Shape::kShifted) {
    const bool late = warp >= Shape::kThreads / kWarp / 2;
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      ptx::cp_async_wait<0>();  // K and V of this tile
      __syncthreads();
      copy_keys(tile + 1);
      copy_values(tile + 1);
      if (late && tile > 0) {
        value_tile(tile - 1);
      }
      score_tile(tile);
      if (!late) {
        value_tile(tile);
      }
    }
    if (late) {
      value_tile(tiles - 1);
    }
  } else {
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      ptx::cp_async_wait<1>();  // K is here, V may be on its way
      __syncthreads();
      copy_keys(tile + 1);
      score_tile(tile);
      ptx::cp_async_wait<1>();  // V is here, the next K may be on its way
      __syncthreads();
      copy_values(tile + 1);
      value_tile(tile);
    }
  }
  ptx::cp_async_wait<0>();

#pragma unroll
  for (int row = 0; row < 2 * kBands; ++row) {
    float total = sum[row];
    total += __shfl_xor_sync(kAllLanes, total, 1);
    total += __shfl_xor_sync(kAllLanes, total, 2);
    const float inverse = 1.0F / total;
    if (query_of(row) >= args.q_rows) {
      continue;
    }
    float* target = args.out + query_of(row) * args.out_stride + head * args.head_dim;
#pragma unroll
    for (int d = 0; d < kDimBlocks; ++d) {
      const int column = 8 * d + 2 * pair;
      float first = out[row / 2][d][2 * (row % 2)] * inverse;
      float second = out[row / 2][d][2 * (row % 2) + 1] * inverse;
      if constexpr (Arithmetic::kInt8) {
        first *= args.v_scale[kv_head * kDim + column];
        second *= args.v_scale[kv_head * kDim + column + 1];
      }
      if (args.pairs && column + 1 < args.head_dim) {
        *reinterpret_cast<float2*>(target + column) = make_float2(first, second);
      } else {
        if (column < args.head_dim) {
          target[column] = first;
        }
        if (column + 1 < args.head_dim) {
          target[column + 1] = second;
        }
      }
    }
  }
}

/// The arguments that come from `out` alone.
inline FlashArguments flash_output(TensorView out) {
  FlashArguments args = {};
  args.out = out.f32();
  args.out_stride = out.stride(0);
  args.q_rows = out.dim(0);
  args.head_dim = static_cast<int>(out.dim(2));
  args.pairs = out.stride(0) % 2 == 0 && out.dim(2) % 2 == 0 &&
               reinterpret_cast<std::uintptr_t>(out.data) % 8 == 0;
  return args;
}

template <typename Arithmetic, int kDim, AttentionLayout kLayout>
void launch_flash(const OpContext& ctx, TensorView out, const FlashArguments& args) {
  using Shape = FlashShape<Arithmetic, kDim, kLayout>;
  launch_shared("attention", ctx, out,
                dim3(grid_x(div_up(out.dim(0), kQueryTile)), static_cast<unsigned>(out.dim(1))),
                dim3(Shape::kThreads), Shape::kSharedBytes,
                flash_attention_kernel<Arithmetic, kDim, kLayout>, args);
}

/// kDim is the smallest of 32, 64 and 128 that holds head_dim; the caller has checked that one
/// does.
template <typename Arithmetic>
void launch_flash_padded(const OpContext& ctx, TensorView out, std::int64_t padded_dim,
                         const FlashArguments& args) {
  switch (padded_dim) {
    case 32:
      launch_flash<Arithmetic, 32, AttentionLayout::kOneBlock>(ctx, out, args);
      return;
    case 64:
      launch_flash<Arithmetic, 64, AttentionLayout::kOneBlock>(ctx, out, args);
      return;
    default:
      launch_flash<Arithmetic, 128, AttentionLayout::kOneBlock>(ctx, out, args);
      return;
  }
}

}  // namespace miniacc::ops::cuda
