#include "kernels/conv1d.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/long_sum.cuh"
#include "kernels/cuda/ops.h"

namespace miniacc::ops::cuda {
namespace {

constexpr int kThreads = 128;  // output positions a block
constexpr int kOutputs = 4;    // output channels a thread: each value of x is used so many times

struct Conv1dSizes {
  std::int64_t in_channels;
  std::int64_t out_channels;
  std::int64_t taps;
  std::int64_t length;
  std::int64_t out_length;
  std::int64_t stride;
  std::int64_t padding;
  std::int64_t dilation;
};

// Floor: 2·out·in·taps operations a position on the f32 units, or the bytes of x once for kOutputs
// channels. Neighbouring threads take neighbouring positions (x from L1), all threads of a block
// the same weights (broadcast). Sums: the taps of a channel in order, channels compensated.
__global__ void __launch_bounds__(kThreads)
    conv1d_kernel(float* out, const float* x, const float* weight, const float* bias,
                  Conv1dSizes sizes) {
  const std::int64_t position = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t first_out = static_cast<std::int64_t>(blockIdx.y) * kOutputs;
  const std::int64_t batch = blockIdx.z;
  if (position >= sizes.out_length) {
    return;
  }
  const std::int64_t start = position * sizes.stride - sizes.padding;
  const float* input = x + batch * sizes.in_channels * sizes.length;
  CompensatedSum sums[kOutputs];
  for (std::int64_t channel = 0; channel < sizes.in_channels; ++channel) {
    float part[kOutputs] = {};
    for (std::int64_t tap = 0; tap < sizes.taps; ++tap) {
      const std::int64_t at = start + tap * sizes.dilation;
      const float value = at >= 0 && at < sizes.length ? input[channel * sizes.length + at] : 0.0F;
      for (int o = 0; o < kOutputs; ++o) {
        if (first_out + o < sizes.out_channels) {
          part[o] +=
              weight[((first_out + o) * sizes.in_channels + channel) * sizes.taps + tap] * value;
        }
      }
    }
    for (int o = 0; o < kOutputs; ++o) {
      sums[o].add(part[o]);
    }
  }
  for (int o = 0; o < kOutputs; ++o) {
    if (first_out + o < sizes.out_channels) {
      const float offset = bias == nullptr ? 0.0F : bias[first_out + o];
      out[(batch * sizes.out_channels + first_out + o) * sizes.out_length + position] =
          sums[o].sum + offset;
    }
  }
}

// Floor: 2·out·in·ceil(taps / stride) operations a position. Output j gets x[(j + padding - k) /
// stride] for the taps k that make this whole. Layout as above; weight is [in, out, taps].
__global__ void __launch_bounds__(kThreads)
    conv_transpose1d_kernel(float* out, const float* x, const float* weight, const float* bias,
                            Conv1dSizes sizes) {
  const std::int64_t position = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t first_out = static_cast<std::int64_t>(blockIdx.y) * kOutputs;
  const std::int64_t batch = blockIdx.z;
  if (position >= sizes.out_length) {
    return;
  }
  const std::int64_t first_tap = (position + sizes.padding) % sizes.stride;
  const std::int64_t newest = (position + sizes.padding) / sizes.stride;  // the x of first_tap
  const float* input = x + batch * sizes.in_channels * sizes.length;
  CompensatedSum sums[kOutputs];
  for (std::int64_t channel = 0; channel < sizes.in_channels; ++channel) {
    float part[kOutputs] = {};
    std::int64_t at = newest;
    for (std::int64_t tap = first_tap; tap < sizes.taps; tap += sizes.stride, --at) {
      const float value = at >= 0 && at < sizes.length ? input[channel * sizes.length + at] : 0.0F;
      for (int o = 0; o < kOutputs; ++o) {
        if (first_out + o < sizes.out_channels) {
          part[o] +=
              weight[(channel * sizes.out_channels + first_out + o) * sizes.taps + tap] * value;
        }
      }
    }
    for (int o = 0; o < kOutputs; ++o) {
      sums[o].add(part[o]);
    }
  }
  for (int o = 0; o < kOutputs; ++o) {
    if (first_out + o < sizes.out_channels) {
      const float offset = bias == nullptr ? 0.0F : bias[first_out + o];
      out[(batch * sizes.out_channels + first_out + o) * sizes.out_length + position] =
          sums[o].sum + offset;
    }
  }
}

Conv1dSizes sizes_of(const ConstTensorView& out, const ConstTensorView& x,
                     const ConstTensorView& weight, const Conv1dOptions& options) {
  return {.in_channels = x.dim(1),
          .out_channels = out.dim(1),
          .taps = weight.dim(2),
          .length = x.dim(2),
          .out_length = out.dim(2),
          .stride = options.stride,
          .padding = options.padding,
          .dilation = options.dilation};
}

void launch_conv(const char* op, OpContext& ctx, const TensorView& out, const ConstTensorView& x,
                 const ConstTensorView& weight, const ConstTensorView& bias,
                 const Conv1dOptions& options,
                 void (*kernel)(float*, const float*, const float*, const float*, Conv1dSizes)) {
  constexpr std::int64_t kMostYz = 65535;
  const Conv1dSizes sizes = sizes_of(out, x, weight, options);
  const std::int64_t groups = div_up(sizes.out_channels, kOutputs);
  MINIACC_REQUIRE(groups <= kMostYz && out.dim(0) <= kMostYz,
                  "conv1d: CUDA takes 65535 batches and 262140 channels at most");
  if (out.num_elements() == 0) {
    return;
  }
  launch(op, ctx, out,
         dim3(grid_x(div_up(sizes.out_length, kThreads)), static_cast<unsigned>(groups),
              static_cast<unsigned>(out.dim(0))),
         dim3(kThreads), kernel, out.f32(), x.f32(), weight.f32(),
         bias.empty() ? nullptr : bias.f32(), sizes);
}

}  // namespace

void conv1d(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
            ConstTensorView bias, const Conv1dOptions& options) {
  launch_conv("conv1d", ctx, out, x, weight, bias, options, conv1d_kernel);
}

void conv_transpose1d(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                      ConstTensorView bias, const Conv1dOptions& options) {
  launch_conv("conv_transpose1d", ctx, out, x, weight, bias, options, conv_transpose1d_kernel);
}

}  // namespace miniacc::ops::cuda
