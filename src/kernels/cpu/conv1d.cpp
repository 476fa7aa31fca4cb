#include <algorithm>
#include <cstring>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace miniacc::ops::cpu {
namespace {

// Direct convolution. oneDNN's reorders and reference paths reach 0.1 to 5 GFLOP/s at the audio
// decoder's shapes (8 to 64 channels, 10^4 to 10^5 samples); this reaches near the multiply-add
// limit there, because nothing is reordered: the input is copied once into a zero-padded buffer,
// kOut output channels times kVectors vectors of consecutive samples stay in registers, and every
// loaded input vector feeds kOut multiply-adds.
//
// Every sum runs over input channels, then taps, in order: the result does not depend on how the
// output is cut among threads.

constexpr std::int64_t kOut = 4;         // output channels in registers
constexpr std::int64_t kSamples = 2048;  // output samples a task computes

/// One tap: where its input starts relative to the output sample, in the channel's padded buffer.
/// One call computes out[o][j] = bias[o] + Σ_i Σ_t weights[(i·taps + t)·kOut + o] ·
/// x[i·x_stride + offsets[t] + j] for o < outputs, j < count. Reads of x go past `count` up to the
/// next multiple of 64; the buffer has that slack.
struct Tile {
  const float* x;
  std::int64_t x_stride;
  std::int64_t in_channels;
  const float* weights;
  const std::int64_t* offsets;
  std::int64_t taps;
  const float* bias;  // kOut values
  float* out;
  std::int64_t out_stride;  // between output channels
  std::int64_t out_step;    // between samples: the stride of a transposed convolution
  std::int64_t outputs;
  std::int64_t count;
};

template <int kLanes>
MINIACC_ISA_BODY void convolve_body(const Tile& t) {
  using Vector [[gnu::vector_size(kLanes * sizeof(float)), gnu::may_alias]] = float;
  // 16 of 32 AVX-512 registers, 8 of 16 AVX or SSE registers.
  constexpr int kVectors = kLanes == 16 ? 4 : 2;
  constexpr std::int64_t kWidth = kLanes * kVectors;
  for (std::int64_t first = 0; first < t.count; first += kWidth) {
    Vector sums[kOut][kVectors];
    for (std::int64_t o = 0; o < kOut; ++o) {
      for (int v = 0; v < kVectors; ++v) {
        sums[o][v] = t.bias[o] - Vector{};
      }
    }
    for (std::int64_t i = 0; i < t.in_channels; ++i) {
      const float* channel = t.x + i * t.x_stride + first;
      const float* weights = t.weights + i * t.taps * kOut;
      for (std::int64_t tap = 0; tap < t.taps; ++tap, weights += kOut) {
        const float* source = channel + t.offsets[tap];
        Vector values[kVectors];
        for (int v = 0; v < kVectors; ++v) {
          std::memcpy(&values[v], source + v * kLanes, sizeof(Vector));
        }
        for (std::int64_t o = 0; o < kOut; ++o) {
          for (int v = 0; v < kVectors; ++v) {
            sums[o][v] += values[v] * weights[o];
          }
        }
      }
    }
    const std::int64_t valid = std::min(kWidth, t.count - first);
    for (std::int64_t o = 0; o < t.outputs; ++o) {
      float buffer[kWidth];
      std::memcpy(buffer, sums[o], sizeof(buffer));
      float* target = t.out + o * t.out_stride + first * t.out_step;
      if (t.out_step == 1) {
        std::memcpy(target, buffer, static_cast<std::size_t>(valid) * sizeof(float));
      } else {
        for (std::int64_t j = 0; j < valid; ++j) {
          target[j * t.out_step] = buffer[j];
        }
      }
    }
  }
}

MINIACC_ISA_VARIANTS(void, convolve, (const Tile& tile), (tile))

constexpr std::int64_t kSlack = 64;  // the widest register tile

/// Rounds `channels` up to whole register tiles.
std::int64_t output_tiles(std::int64_t channels) { return (channels + kOut - 1) / kOut; }

/// Weights of one output tile, [in][taps][kOut], and its bias; absent channels are zero.
///   at(o, i, tap) gives the weight.
template <typename At>
void pack_tile(float* packed, float* packed_bias, std::int64_t first, std::int64_t outputs,
               std::int64_t in_channels, std::int64_t taps, const float* bias, const At& at) {
  for (std::int64_t o = 0; o < kOut; ++o) {
    const bool present = o < outputs;
    packed_bias[o] = present && bias != nullptr ? bias[first + o] : 0.0F;
    for (std::int64_t i = 0; i < in_channels; ++i) {
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        packed[(i * taps + tap) * kOut + o] = present ? at(first + o, i, tap) : 0.0F;
      }
    }
  }
}

/// A convolution that reads phase buffers: what conv1d and each phase of conv_transpose1d become.
struct Job {
  std::int64_t batch, in_channels, out_channels, taps;
  const float* buffer;  // [batch, in_channels, row]
  std::int64_t row;
  const std::int64_t* offsets;  // [taps]
  const float* bias;
  float* out;  // [batch, out_channels, out_length], written at start + j·step, j < count
  std::int64_t out_length, start, step, count;
};

template <typename At>
void run(OpContext& ctx, const Job& job, const At& at) {
  if (job.count <= 0 || job.out_channels == 0 || job.batch == 0) {
    return;
  }
  const std::int64_t tiles = output_tiles(job.out_channels);
  const std::int64_t tile_weights = job.in_channels * job.taps * kOut;
  // One more block keeps the tensor non-empty when a phase has no tap.
  Tensor packed = empty_tensor(ctx.device, {tiles, tile_weights + kOut});
  float* weights = packed.f32().data();
  const auto outputs_of = [&](std::int64_t tile) {
    return std::min(kOut, job.out_channels - tile * kOut);
  };
  parallel_for(ctx, tiles, tile_weights, [&](std::int64_t tile) {
    float* target = weights + tile * (tile_weights + kOut);
    pack_tile(target, target + tile_weights, tile * kOut, outputs_of(tile), job.in_channels,
              job.taps, job.bias, at);
  });
  const std::int64_t pieces = (job.count + kSamples - 1) / kSamples;
  const std::int64_t task_work = tile_weights * std::min(job.count, kSamples) / 16;
  parallel_tasks(ctx, job.batch * tiles * pieces, task_work, [&](std::int64_t task) {
    const std::int64_t piece = task % pieces;
    const std::int64_t tile = task / pieces % tiles;
    const std::int64_t item = task / pieces / tiles;
    const float* tile_data = weights + tile * (tile_weights + kOut);
    const std::int64_t first = piece * kSamples;
    convolve({.x = job.buffer + item * job.in_channels * job.row + first,
              .x_stride = job.row,
              .in_channels = job.in_channels,
              .weights = tile_data,
              .offsets = job.offsets,
              .taps = job.taps,
              .bias = tile_data + tile_weights,
              .out = job.out + (item * job.out_channels + tile * kOut) * job.out_length +
                     job.start + first * job.step,
              .out_stride = job.out_length,
              .out_step = job.step,
              .outputs = outputs_of(tile),
              .count = std::min(kSamples, job.count - first)});
  });
}

/// [rows, phases · phase_length] where phase p of a row holds the zero-padded samples p, p +
/// phases, p + 2·phases, ...: with one phase a padded copy, with more the input of a strided
/// convolution.
Tensor padded_phases(OpContext& ctx, ConstTensorView x, std::int64_t padding, std::int64_t phases,
                     std::int64_t phase_length) {
  const std::int64_t length = x.dim(2);
  Tensor padded = empty_tensor(ctx.device, {x.dim(0) * x.dim(1), phases * phase_length});
  float* buffer = padded.f32().data();
  const float* input = x.f32();
  parallel_for(ctx, x.dim(0) * x.dim(1), phases * phase_length, [&](std::int64_t row) {
    float* target = buffer + row * phases * phase_length;
    const float* source = input + row * length;
    std::fill(target, target + phases * phase_length, 0.0F);
    if (phases == 1) {
      const std::int64_t kept = std::clamp<std::int64_t>(phase_length - padding, 0, length);
      std::copy(source, source + kept, target + std::min(padding, phase_length));
      return;
    }
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t at = i + padding;
      if (at / phases < phase_length) {
        target[at % phases * phase_length + at / phases] = source[i];
      }
    }
  });
  return padded;
}

}  // namespace

void conv1d(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
            ConstTensorView bias, const Conv1dOptions& options) {
  const std::int64_t taps = weight.dim(2);
  const std::int64_t count = out.dim(2);
  // Output j, tap t reads padded sample j·stride + t·dilation: phase (t·dilation) % stride.
  const std::int64_t phases = options.stride;
  const std::int64_t phase_length = count + (taps - 1) * options.dilation / phases + 1 + kSlack;
  const Tensor buffer = padded_phases(ctx, x, options.padding, phases, phase_length);
  Tensor offset_storage = empty_tensor(ctx.device, {taps}, DType::kI64);
  auto* offsets = offset_storage.view().as<std::int64_t>();
  for (std::int64_t tap = 0; tap < taps; ++tap) {
    const std::int64_t sample = tap * options.dilation;
    offsets[tap] = sample % phases * phase_length + sample / phases;
  }
  const float* weights = weight.f32();
  const std::int64_t in_channels = x.dim(1);
  run(ctx,
      {.batch = x.dim(0),
       .in_channels = in_channels,
       .out_channels = out.dim(1),
       .taps = taps,
       .buffer = buffer.f32().data(),
       .row = phases * phase_length,
       .offsets = offsets,
       .bias = bias.empty() ? nullptr : bias.f32(),
       .out = out.f32(),
       .out_length = count,
       .start = 0,
       .step = 1,
       .count = count},
      [&](std::int64_t o, std::int64_t i, std::int64_t tap) {
        return weights[(o * in_channels + i) * taps + tap];
      });
}

void conv_transpose1d(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                      ConstTensorView bias, const Conv1dOptions& options) {
  const std::int64_t taps = weight.dim(2);
  const std::int64_t stride = options.stride;
  const std::int64_t out_length = out.dim(2);
  const std::int64_t out_channels = out.dim(1);
  // Output j gets x[(j + padding - k) / stride] for the taps k that make this whole: outputs
  // j = phase + stride·q form an ordinary convolution with every stride-th tap.
  const std::int64_t most_taps = (taps + stride - 1) / stride;
  const std::int64_t left = most_taps;  // zeros, so that every index is within the buffer
  const std::int64_t row = left + (out_length + options.padding) / stride + 2 + kSlack;
  const Tensor buffer = padded_phases(ctx, x, left, 1, row);
  Tensor offset_storage = empty_tensor(ctx.device, {most_taps}, DType::kI64);
  auto* offsets = offset_storage.view().as<std::int64_t>();
  const float* weights = weight.f32();
  for (std::int64_t phase = 0; phase < std::min(stride, out_length); ++phase) {
    const std::int64_t first_tap = (phase + options.padding) % stride;
    const std::int64_t phase_taps = first_tap < taps ? (taps - first_tap + stride - 1) / stride : 0;
    for (std::int64_t tap = 0; tap < phase_taps; ++tap) {
      offsets[tap] = left + (phase + options.padding - first_tap) / stride - tap;
    }
    run(ctx,
        {.batch = x.dim(0),
         .in_channels = x.dim(1),
         .out_channels = out_channels,
         .taps = phase_taps,
         .buffer = buffer.f32().data(),
         .row = row,
         .offsets = offsets,
         .bias = bias.empty() ? nullptr : bias.f32(),
         .out = out.f32(),
         .out_length = out_length,
         .start = phase,
         .step = stride,
         .count = (out_length - phase + stride - 1) / stride},
        [&](std::int64_t o, std::int64_t i, std::int64_t tap) {
          return weights[(i * out_channels + o) * taps + first_tap + tap * stride];
        });
  }
}

}  // namespace miniacc::ops::cpu
