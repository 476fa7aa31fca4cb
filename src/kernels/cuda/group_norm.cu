#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"

namespace miniacc::ops::cuda {
namespace {

// Reads 4 bytes a value twice (the second time from L2 where the frame fits); about three double
// operations a value, which bounds it on cards with few double units. A block a frame and group;
// its threads walk positions and the group's channels together, neighbours on neighbouring values.
__global__ void __launch_bounds__(kBlock)
    group_norm_kernel(float* scale, float* shift, const float* x, const float* weight,
                      const float* bias, std::int64_t positions, std::int64_t channels,
                      std::int64_t groups, float eps) {
  const std::int64_t frame = static_cast<std::int64_t>(blockIdx.x) / groups;
  const std::int64_t group = static_cast<std::int64_t>(blockIdx.x) % groups;
  const std::int64_t size = channels / groups;
  const std::int64_t count = positions * size;
  const float* values = x + frame * positions * channels + group * size;
  const auto value_at = [&](std::int64_t i) {
    return static_cast<double>(values[i / size * channels + i % size]);
  };
  double sum = 0.0;
  for (std::int64_t i = threadIdx.x; i < count; i += kBlock) {
    sum += value_at(i);
  }
  const double mean = row_sum<kBlock>(sum) / static_cast<double>(count);
  double squares = 0.0;
  for (std::int64_t i = threadIdx.x; i < count; i += kBlock) {
    const double centred = value_at(i) - mean;
    squares += centred * centred;
  }
  const double variance = row_sum<kBlock>(squares) / static_cast<double>(count);
  const double factor = 1.0 / sqrt(variance + static_cast<double>(eps));
  for (std::int64_t c = threadIdx.x; c < size; c += kBlock) {
    const std::int64_t channel = group * size + c;
    const double channel_scale = static_cast<double>(weight[channel]) * factor;
    scale[frame * channels + channel] = static_cast<float>(channel_scale);
    shift[frame * channels + channel] =
        static_cast<float>(static_cast<double>(bias[channel]) - mean * channel_scale);
  }
}

}  // namespace

void group_norm_coefficients(OpContext& ctx, TensorView scale, TensorView shift, ConstTensorView x,
                             ConstTensorView weight, ConstTensorView bias, std::int64_t num_groups,
                             float eps) {
  launch("group_norm_coefficients", ctx, scale, dim3(grid_x(x.dim(0) * num_groups)), dim3(kBlock),
         group_norm_kernel, scale.f32(), shift.f32(), x.f32(), weight.f32(), bias.f32(), x.dim(1),
         x.dim(2), num_groups, eps);
}

}  // namespace miniacc::ops::cuda
