#include "kernels/frames.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ops.h"

// Products and sums below are rounded one by one, as the CPU does: the same values give the same
// picture.
namespace miniacc::ops::cuda {
namespace {

struct PatchArguments {
  float* canvas;
  std::int64_t num_frames;
  std::int64_t height;
  std::int64_t width;
  const float* values;
  const float* weights;
  const std::int32_t* frame_index;
  std::int64_t h;
  std::int64_t w;
  int frames;
  int patch;
  std::int64_t top;
  std::int64_t left;
};

// Moves 12 bytes a shown value (values and canvas read, canvas written); the weights stay in L2.
// Bound by memory. A block works on one cell: reads run through memory, writes come in runs of a
// patch's width.
__global__ void __launch_bounds__(kBlock) add_patches_kernel(PatchArguments args) {
  const std::int64_t cell = blockIdx.x;
  const std::int64_t it = cell / (args.h * args.w);
  const std::int64_t ih = cell / args.w % args.h;
  const std::int64_t iw = cell % args.w;
  const int area = args.patch * args.patch;
  const int size = 3 * args.frames * area;
  const float* source = args.values + cell * size;
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kBlock) {
    const int plane = i / area;
    const std::int64_t frame = args.frame_index[it * args.frames + plane % args.frames];
    if (frame < 0 || frame >= args.num_frames) {
      continue;
    }
    const std::int64_t y = ih * args.patch + i % area / args.patch;
    const std::int64_t x = iw * args.patch + i % args.patch;
    const float weight = args.weights[y * args.w * args.patch + x];
    if (weight != 0.0F) {
      float* target =
          args.canvas +
          ((frame * 3 + plane / args.frames) * args.height + args.top + y) * args.width +
          args.left + x;
      *target = __fadd_rn(*target, __fmul_rn(weight, source[i]));
    }
  }
}

// Moves 12 bytes a value; bound by memory. A block works on one frame, blocks along y share it.
__global__ void __launch_bounds__(kBlock)
    cross_fade_kernel(float* head, const float* previous, std::int64_t frames, std::int64_t size) {
  const std::int64_t k = blockIdx.x;
  const double ramp = static_cast<double>(k) / static_cast<double>(frames);
  const auto weight = static_cast<float>(ramp);
  const auto previous_weight = static_cast<float>(1.0 - ramp);
  float* target = head + k * size;
  const float* old = previous + k * size;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * kBlock;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.y) * kBlock + threadIdx.x; i < size;
       i += step) {
    target[i] = __fadd_rn(__fmul_rn(old[i], previous_weight), __fmul_rn(target[i], weight));
  }
}

struct Factors {
  float scale[3];
  float offset[3];
};

// Moves 8 bytes a value; bound by memory. A block works on one plane, blocks along y share it.
__global__ void __launch_bounds__(kBlock)
    scale_to_unit_kernel(float* pixels, Factors factors, std::int64_t area) {
  const std::int64_t plane = blockIdx.x;
  const auto channel = static_cast<int>(plane % 3);
  const float factor = factors.scale[channel];
  const float offset = factors.offset[channel];
  float* values = pixels + plane * area;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * kBlock;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.y) * kBlock + threadIdx.x; i < area;
       i += step) {
    const float value = __fadd_rn(__fmul_rn(values[i], factor), offset);
    values[i] = fminf(fmaxf(value, 0.0F), 1.0F);
  }
}

// Moves 5 bytes a value (4 read, 1 written); bound by memory. One pixel a thread.
__global__ void __launch_bounds__(kBlock)
    to_rgb8_kernel(std::uint8_t* rgb, const float* pixels, std::int64_t area) {
  const std::int64_t frame = blockIdx.x;
  const float* planes = pixels + 3 * frame * area;
  std::uint8_t* bytes = rgb + 3 * frame * area;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * kBlock;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.y) * kBlock + threadIdx.x; i < area;
       i += step) {
    for (int c = 0; c < 3; ++c) {
      bytes[3 * i + c] = static_cast<std::uint8_t>(
          static_cast<int>(rintf(__fmul_rn(planes[c * area + i], 255.0F))));
    }
  }
}

}  // namespace

void add_patches(OpContext& ctx, TensorView canvas, ConstTensorView values,
                 const PatchPlacement& place) {
  PatchArguments args = {};
  args.canvas = canvas.f32();
  args.num_frames = canvas.dim(0);
  args.height = canvas.dim(2);
  args.width = canvas.dim(3);
  args.values = values.f32();
  args.weights = place.weights.f32();
  args.frame_index = place.frame_index.as<std::int32_t>();
  args.h = place.h;
  args.w = place.w;
  args.frames = static_cast<int>(place.frames);
  args.patch = static_cast<int>(place.patch);
  args.top = place.top;
  args.left = place.left;
  launch("add_patches", ctx, canvas, dim3(grid_x(values.dim(0))), dim3(kBlock), add_patches_kernel,
         args);
}

void cross_fade(OpContext& ctx, TensorView head, ConstTensorView previous) {
  const std::int64_t size = head.num_elements() / head.dim(0);
  launch("cross_fade", ctx, head, row_grid(head.dim(0), size), dim3(kBlock), cross_fade_kernel,
         head.f32(), previous.f32(), head.dim(0), size);
}

void scale_to_unit(OpContext& ctx, TensorView pixels, const ChannelScale& scale) {
  const std::int64_t area = pixels.dim(2) * pixels.dim(3);
  Factors factors = {};
  for (std::size_t c = 0; c < 3; ++c) {
    factors.scale[c] = scale.scale[c];
    factors.offset[c] = scale.offset[c];
  }
  launch("scale_to_unit", ctx, pixels, row_grid(3 * pixels.dim(0), area), dim3(kBlock),
         scale_to_unit_kernel, pixels.f32(), factors, area);
}

void to_rgb8(OpContext& ctx, TensorView rgb, ConstTensorView pixels) {
  const std::int64_t area = pixels.dim(2) * pixels.dim(3);
  launch("to_rgb8", ctx, rgb, row_grid(pixels.dim(0), area), dim3(kBlock), to_rgb8_kernel,
         rgb.as<std::uint8_t>(), pixels.f32(), area);
}

}  // namespace miniacc::ops::cuda
