#include "kernels/segment_attention.h"

#include <string>

#include "kernels/attention.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx.cuh"

namespace miniacc::ops::cuda {
namespace {

constexpr int kWarps = kBlock / kWarp;
constexpr int kMaxDim = 128;

struct HeadsArguments {
  const float* x;  ///< [rows, heads, head_dim], rows x_stride apart
  std::int64_t x_stride;
  std::uint32_t* out;  ///< [segments, heads, segment_rows, dim] bf16
  std::int64_t segment_rows;
  std::int64_t heads;
  int head_dim;
  int dim;
  const float* cos;  ///< [segment_rows, n]; null: neither norm nor embedding
  const float* sin;
  int n;
  float eps;
};

// Moves 6 bytes a value (4 read, 2 written), and each row's cos and sin, which the heads share
// through L1; bound by memory. A block works on one row, a warp on one head at a time: the head is
// summed in registers and passes through shared memory for the partner of each channel.
__global__ void __launch_bounds__(kBlock) norm_rope_heads_kernel(HeadsArguments args) {
  __shared__ float of_warp[kWarps][kMaxDim];
  const std::int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  float* values = of_warp[warp];
  const std::int64_t segment = row / args.segment_rows;
  const std::int64_t place = row % args.segment_rows;
  const int n = args.n;
  for (std::int64_t head = warp; head < args.heads; head += kWarps) {
    const float* source = args.x + row * args.x_stride + head * args.head_dim;
    __syncwarp();  // the head before this one has been read
    double squares = 0.0;
    for (int i = lane; i < args.dim; i += kWarp) {
      const float value = i < args.head_dim ? source[i] : 0.0F;
      values[i] = value;
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
    float factor = 1.0F;
    if (args.cos != nullptr) {
      for (int distance = kWarp / 2; distance > 0; distance /= 2) {
        squares += __shfl_xor_sync(0xFFFFFFFFU, squares, distance);
      }
      factor = static_cast<float>(
          1.0 / sqrt(squares / static_cast<double>(args.head_dim) + static_cast<double>(args.eps)));
    }
    __syncwarp();
    const auto channel = [&](int i) {
      const float own = values[i] * factor;
      if (i >= 2 * n) {
        return own;
      }
      const int angle = i < n ? i : i - n;
      const float c = args.cos[place * n + angle];
      const float s = args.sin[place * n + angle];
      return i < n ? own * c - values[i + n] * factor * s : own * c + values[i - n] * factor * s;
    };
    std::uint32_t* target =
        args.out + ((segment * args.heads + head) * args.segment_rows + place) * (args.dim / 2);
    for (int i = lane; i < args.dim / 2; i += kWarp) {
      target[i] = ptx::pack_bf16(channel(2 * i), channel(2 * i + 1));
    }
  }
}

Tensor rounded_heads(OpContext& ctx, ConstTensorView x, std::int64_t dim,
                     const SegmentAttention& options, bool embedded) {
  const std::int64_t segments = x.dim(0) / options.segment_rows;
  Tensor out =
      empty_tensor(ctx.device, {segments, x.dim(1), options.segment_rows, dim}, DType::kBF16);
  HeadsArguments args = {};
  args.x = x.f32();
  args.x_stride = x.stride(0);
  args.out = static_cast<std::uint32_t*>(out.view().data);
  args.segment_rows = options.segment_rows;
  args.heads = x.dim(1);
  args.head_dim = static_cast<int>(x.dim(2));
  args.dim = static_cast<int>(dim);
  args.eps = options.norm_eps;
  if (embedded) {
    args.cos = options.cos.f32();
    args.sin = options.sin.f32();
    args.n = static_cast<int>(options.cos.dim(1));
  }
  launch("segment_attention", ctx, x, dim3(grid_x(x.dim(0))), dim3(kBlock), norm_rope_heads_kernel,
         args);
  return out;
}

}  // namespace

void segment_attention(OpContext& ctx, TensorView out, TensorView q, TensorView k,
                       ConstTensorView v, const SegmentAttention& options) {
  const std::int64_t dim = padded_head_dim(q.dim(2));
  if (dim == 0) {
    throw InternalError("segment_attention: bf16 on CUDA takes head_dim up to 128, got " +
                        std::to_string(q.dim(2)));
  }
  Tensor queries = rounded_heads(ctx, q, dim, options, true);
  Tensor keys = rounded_heads(ctx, k, dim, options, true);
  Tensor values = rounded_heads(ctx, v, dim, options, false);
  for (std::int64_t i = 0; i < queries.shape()[0]; ++i) {
    const auto segment = [&](Tensor& tensor) {
      const TensorView view = tensor.view().narrow(0, i, 1);
      return view.reshape({view.dim(1), view.dim(2), view.dim(3)});
    };
    attention_bf16_rounded(ctx, out.narrow(0, i * options.segment_rows, options.segment_rows),
                           segment(queries), segment(keys), segment(values), false, options.scale);
  }
}

}  // namespace miniacc::ops::cuda
