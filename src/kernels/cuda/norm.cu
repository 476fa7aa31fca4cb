#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"

namespace miniacc::ops::cuda {
namespace {

/// Where the rows of a [rows, hidden] or [rows, heads, hidden] view lie, in elements.
struct RowLayout {
  std::int64_t row_stride;
  std::int64_t head_stride;
};

RowLayout layout(const ConstTensorView& view) {
  return {view.stride(0), view.shape.rank() == 3 ? view.stride(1) : 0};
}

template <int kThreads>
__device__ float inverse_rms(const float* x, std::int64_t size, float eps) {
  double squares = 0.0;
  for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
    squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  const double mean = row_sum<kThreads>(squares) / static_cast<double>(size);
  return static_cast<float>(1.0 / sqrt(mean + static_cast<double>(eps)));
}

// Moves 8 bytes a value (4 read, 4 written) plus the weight, which stays in L2; the second reading
// of x comes from L1 or L2. Bound by memory where the card has double units enough (one double FMA
// a value). kThreads threads a row, neighbours on neighbouring values. out may be x: a value is
// written by the thread that reads it, after the whole row has been summed.
template <int kThreads>
__global__ void __launch_bounds__(kBlock)
    rms_norm_kernel(float* out, RowLayout out_layout, const float* x, RowLayout x_layout,
                    const float* weight, std::int64_t rows, std::int64_t heads, std::int64_t size,
                    float eps) {
  const std::int64_t at = row_of_thread();
  if (at >= rows * heads) {
    return;  // a whole warp: the reductions of the others do not wait for it
  }
  const std::int64_t row = at / heads;
  const std::int64_t head = at % heads;
  const float* source = x + row * x_layout.row_stride + head * x_layout.head_stride;
  float* target = out + row * out_layout.row_stride + head * out_layout.head_stride;
  const float factor = inverse_rms<kThreads>(source, size, eps);
  for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
    const float value = source[i] * factor;
    target[i] = weight == nullptr ? value : value * weight[i];
  }
}

// Moves 8 bytes a value, as above; weight and the few table rows (two values a value) stay in L2.
// A row whose index is outside the table becomes NaN: the host cannot look at the index without
// waiting for the device, and nothing outside the table is read.
template <int kThreads>
__global__ void __launch_bounds__(kBlock)
    modulated_rms_norm_kernel(float* out, const float* x, const float* weight, const float* shift,
                              std::int64_t shift_stride, const float* scale,
                              std::int64_t scale_stride, const std::int32_t* index,
                              std::int64_t table_rows, std::int64_t rows, std::int64_t size,
                              float eps) {
  const std::int64_t row = row_of_thread();
  if (row >= rows) {
    return;
  }
  const float* source = x + row * size;
  float* target = out + row * size;
  const std::int64_t entry = index[row];
  if (entry < 0 || entry >= table_rows) {
    for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
      target[i] = nanf("");
    }
    return;
  }
  const float* row_shift = shift + entry * shift_stride;
  const float* row_scale = scale + entry * scale_stride;
  const float factor = inverse_rms<kThreads>(source, size, eps);
  for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
    target[i] = source[i] * factor * weight[i] * (1.0F + row_scale[i]) + row_shift[i];
  }
}

// Moves 8 bytes a value; x is read three times, twice from L1 or L2. Centred in double, so that a
// row far from zero keeps its digits: about four double operations a value, which bounds it on
// cards with few double units (all but sm_80 and sm_90).
template <int kThreads>
__global__ void __launch_bounds__(kBlock)
    layer_norm_kernel(float* out, const float* x, const float* weight, const float* bias,
                      std::int64_t rows, std::int64_t size, float eps) {
  const std::int64_t row = row_of_thread();
  if (row >= rows) {
    return;
  }
  const float* source = x + row * size;
  float* target = out + row * size;
  double sum = 0.0;
  for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
    sum += static_cast<double>(source[i]);
  }
  const double mean = row_sum<kThreads>(sum) / static_cast<double>(size);
  double squares = 0.0;
  for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
    const double centred = static_cast<double>(source[i]) - mean;
    squares += centred * centred;
  }
  const double variance = row_sum<kThreads>(squares) / static_cast<double>(size);
  const double factor = 1.0 / sqrt(variance + static_cast<double>(eps));
  for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
    const auto normalized = static_cast<float>((static_cast<double>(source[i]) - mean) * factor);
    target[i] = normalized * weight[i] + bias[i];
  }
}

}  // namespace

void rms_norm(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
              float eps) {
  const std::int64_t heads = x.shape.rank() == 3 ? x.dim(1) : 1;
  const std::int64_t size = x.shape.back();
  const float* weights = weight.empty() ? nullptr : weight.f32();
  launch_rows("rms_norm", ctx, out, x.dim(0) * heads, size, rms_norm_kernel<kWarp>,
              rms_norm_kernel<kBlock>, out.f32(), layout(out), x.f32(), layout(x), weights,
              x.dim(0), heads, size, eps);
}

void modulated_rms_norm(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                        ConstTensorView shift, ConstTensorView scale, ConstTensorView index,
                        float eps) {
  launch_rows("modulated_rms_norm", ctx, out, x.dim(0), x.dim(1), modulated_rms_norm_kernel<kWarp>,
              modulated_rms_norm_kernel<kBlock>, out.f32(), x.f32(), weight.f32(), shift.f32(),
              shift.stride(0), scale.f32(), scale.stride(0), index.as<std::int32_t>(), shift.dim(0),
              x.dim(0), x.dim(1), eps);
}

void layer_norm(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
                ConstTensorView bias, float eps) {
  launch_rows("layer_norm", ctx, out, x.dim(0), x.dim(1), layer_norm_kernel<kWarp>,
              layer_norm_kernel<kBlock>, out.f32(), x.f32(), weight.f32(), bias.f32(), x.dim(0),
              x.dim(1), eps);
}

}  // namespace miniacc::ops::cuda
