#include "kernels/conv3d.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/long_sum.cuh"
#include "kernels/cuda/ops.h"

namespace miniacc::ops::cuda {
namespace {

struct Conv3dSizes {
  std::int64_t frames, height, width, in;
  std::int64_t out_frames, out_height, out_width, out;
  std::int64_t kernel_t, kernel_h, kernel_w;
  std::int64_t stride_t, stride_hw, past_frames, pad_before;
  bool accumulate;
};

// weight [out, in, taps] as [taps, in, out], so that neighbouring output channels are neighbours.
// Moves 8 bytes a value, the reads not coalesced: weights are small against what they multiply.
__global__ void __launch_bounds__(kBlock)
    pack_weight_kernel(float* packed, const float* weight, std::int64_t out, std::int64_t in,
                       std::int64_t taps) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (i >= out * in * taps) {
    return;
  }
  const std::int64_t o = i % out;
  const std::int64_t channel = i / out % in;
  const std::int64_t tap = i / out / in;
  packed[i] = weight[(o * in + channel) * taps + tap];
}

constexpr int kAcross = 32;  // output channels a block: a warp on neighbouring ones
constexpr int kDown = 8;     // positions a block

// Floor: 2·out·in·taps operations a position on the f32 units. A warp works on 32 output channels
// of one position: x is a broadcast, the packed weights coalesced (from L2). The norm and silu in
// front are computed anew for each tap and group of channels. Sums: 16 channels in order, these
// compensated.
__global__ void __launch_bounds__(kAcross* kDown)
    conv3d_kernel(float* out, const float* x, const float* packed, const float* bias,
                  const float* scale, const float* shift, std::int64_t positions,
                  Conv3dSizes sizes) {
  constexpr std::int64_t kChunk = 16;
  const std::int64_t position = static_cast<std::int64_t>(blockIdx.x) * kDown + threadIdx.y;
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.y) * kAcross + threadIdx.x;
  if (position >= positions || channel >= sizes.out) {
    return;
  }
  const std::int64_t column = position % sizes.out_width;
  const std::int64_t row = position / sizes.out_width % sizes.out_height;
  const std::int64_t frame = position / sizes.out_width / sizes.out_height % sizes.out_frames;
  const std::int64_t batch = position / sizes.out_width / sizes.out_height / sizes.out_frames;
  const auto reflected = [](std::int64_t at, std::int64_t length) {
    return at < 0 ? -at : at >= length ? 2 * (length - 1) - at : at;
  };
  CompensatedSum sum;
  for (std::int64_t t = 0; t < sizes.kernel_t; ++t) {
    const std::int64_t in_frame = frame * sizes.stride_t - sizes.past_frames + t;
    if (in_frame < 0) {
      continue;  // a frame of zeros
    }
    const std::int64_t of_frame = batch * sizes.frames + in_frame;
    const float* scales = scale == nullptr ? nullptr : scale + of_frame * sizes.in;
    const float* shifts = scale == nullptr ? nullptr : shift + of_frame * sizes.in;
    for (std::int64_t h = 0; h < sizes.kernel_h; ++h) {
      const std::int64_t in_row =
          reflected(row * sizes.stride_hw - sizes.pad_before + h, sizes.height);
      for (std::int64_t w = 0; w < sizes.kernel_w; ++w) {
        const std::int64_t in_column =
            reflected(column * sizes.stride_hw - sizes.pad_before + w, sizes.width);
        const float* values =
            x + ((of_frame * sizes.height + in_row) * sizes.width + in_column) * sizes.in;
        const std::int64_t tap = (t * sizes.kernel_h + h) * sizes.kernel_w + w;
        const float* weights = packed + tap * sizes.in * sizes.out + channel;
        for (std::int64_t first = 0; first < sizes.in; first += kChunk) {
          const std::int64_t end = first + kChunk < sizes.in ? first + kChunk : sizes.in;
          float part = 0.0F;
          for (std::int64_t c = first; c < end; ++c) {
            float value = values[c];
            if (scales != nullptr) {
              value = value * scales[c] + shifts[c];
              value = value / (1.0F + expf(-value));
            }
            part += value * weights[c * sizes.out];
          }
          sum.add(part);
        }
      }
    }
  }
  float* target = out + position * sizes.out + channel;
  const float result = sum.sum + (bias == nullptr ? 0.0F : bias[channel]);
  *target = sizes.accumulate ? *target + result : result;
}

}  // namespace

void conv3d(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
            ConstTensorView bias, const Conv3dOptions& options) {
  constexpr std::int64_t kMostY = 65535;
  const Conv3dSizes sizes{.frames = x.dim(1),
                          .height = x.dim(2),
                          .width = x.dim(3),
                          .in = x.dim(4),
                          .out_frames = out.dim(1),
                          .out_height = out.dim(2),
                          .out_width = out.dim(3),
                          .out = out.dim(4),
                          .kernel_t = weight.dim(2),
                          .kernel_h = weight.dim(3),
                          .kernel_w = weight.dim(4),
                          .stride_t = options.stride_t,
                          .stride_hw = options.stride_hw,
                          .past_frames = options.past_frames,
                          .pad_before = options.pad_before,
                          .accumulate = options.accumulate};
  ctx.check_cancelled();
  if (out.num_elements() == 0) {
    return;
  }
  const std::int64_t groups = div_up(sizes.out, kAcross);
  MINIACC_REQUIRE(groups <= kMostY, "conv3d: CUDA takes 2 million output channels at most");
  const std::int64_t taps = sizes.kernel_t * sizes.kernel_h * sizes.kernel_w;
  Tensor packed = empty_tensor(ctx.device, {taps, sizes.in, sizes.out});
  launch("conv3d", ctx, out, dim3(grid_x(div_up(weight.num_elements(), kBlock))), dim3(kBlock),
         pack_weight_kernel, packed.view().f32(), weight.f32(), sizes.out, sizes.in, taps);
  const std::int64_t positions = out.dim(0) * sizes.out_frames * sizes.out_height * sizes.out_width;
  const bool normalize = !options.normalize.scale.empty();
  launch("conv3d", ctx, out, dim3(grid_x(div_up(positions, kDown)), static_cast<unsigned>(groups)),
         dim3(kAcross, kDown), conv3d_kernel, out.f32(), x.f32(),
         static_cast<const float*>(packed.view().f32()), bias.empty() ? nullptr : bias.f32(),
         normalize ? options.normalize.scale.f32() : nullptr,
         normalize ? options.normalize.shift.f32() : nullptr, positions, sizes);
}

}  // namespace miniacc::ops::cuda
