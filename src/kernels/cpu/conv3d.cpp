#include <algorithm>
#include <cstring>
#include <dnnl.hpp>
#include <optional>
#include <unordered_map>

#include "kernels/cpu/dnnl_util.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace miniacc::ops::cpu {
namespace {

using dnnl::memory;

// oneDNN convolves channels-last frames without reordering them; what it lacks is the reflected
// border. The frames a group of outputs needs are copied into a padded buffer, and the group norm
// and SiLU in front of the convolution are computed on the way.

constexpr std::int64_t kPaddedBytes = std::int64_t{64} << 20;

template <int kLanes>
MINIACC_ISA_BODY void scale_silu_body(float* out, const float* x, const float* scale,
                                      const float* shift, std::int64_t channels,
                                      std::int64_t pixels) {
  for (std::int64_t p = 0; p < pixels; ++p) {
    const float* source = x + p * channels;
    float* target = out + p * channels;
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      const float value = source[c] * scale[c] + shift[c];
      target[c] = value / (1.0F + vector_exp(-value));
    }
  }
}

MINIACC_ISA_VARIANTS(void, scale_silu,
                     (float* out, const float* x, const float* scale, const float* shift,
                      std::int64_t channels, std::int64_t pixels),
                     (out, x, scale, shift, channels, pixels))

/// Index -1 is 1, index size is size - 2.
std::int64_t reflected(std::int64_t index, std::int64_t size) {
  if (index < 0) {
    return -index;
  }
  return index < size ? index : 2 * (size - 1) - index;
}

/// The frames [first, first + count) of x (batch and frames counted as one axis) with their
/// reflected border.
void pad_frames(const OpContext& ctx, float* padded, ConstTensorView x, std::int64_t first,
                std::int64_t count, const Conv3dOptions& options) {
  const std::int64_t height = x.dim(2);
  const std::int64_t width = x.dim(3);
  const std::int64_t channels = x.dim(4);
  const std::int64_t padded_height = height + options.pad_before + options.pad_after;
  const std::int64_t padded_width = width + options.pad_before + options.pad_after;
  const float* input = x.f32();
  const bool normalized = !options.normalize.scale.empty();
  const float* scales = normalized ? options.normalize.scale.f32() : nullptr;
  const float* shifts = normalized ? options.normalize.shift.f32() : nullptr;
  const auto pixel_bytes = static_cast<std::size_t>(channels) * sizeof(float);
  const std::int64_t work = (normalized ? 12 : 1) * padded_width * channels;
  parallel_for(ctx, count * padded_height, work, [&](std::int64_t item) {
    const std::int64_t frame = first + item / padded_height;
    const std::int64_t row = reflected(item % padded_height - options.pad_before, height);
    const float* source = input + (frame * height + row) * width * channels;
    float* target = padded + item * padded_width * channels;
    float* inner = target + options.pad_before * channels;
    if (normalized) {
      scale_silu(inner, source, scales + frame * channels, shifts + frame * channels, channels,
                 width);
    } else {
      std::memcpy(inner, source, static_cast<std::size_t>(width) * pixel_bytes);
    }
    for (std::int64_t p = 0; p < options.pad_before; ++p) {
      const std::int64_t column = reflected(p - options.pad_before, width);
      std::memcpy(target + p * channels, inner + column * channels, pixel_bytes);
    }
    for (std::int64_t p = 0; p < options.pad_after; ++p) {
      const std::int64_t column = reflected(width + p, width);
      std::memcpy(inner + (width + p) * channels, inner + column * channels, pixel_bytes);
    }
  });
}

/// The taps that meet data: all of them, or the one that a lone frame sees.
struct Taps {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

class Convolver {
 public:
  Convolver(OpContext& ctx, ConstTensorView weight, ConstTensorView bias, Taps taps,
            const Conv3dOptions& options)
      : ctx_(ctx), weight_(weight), bias_(bias), taps_(taps), options_(options) {}

  /// out [batch, out_frames, out_height, out_width, out] from padded frames [batch, frames, height,
  /// width, in] with `missing` frames of zeros in front.
  void run(float* out, const memory::dims& out_dims, const float* padded,
           const memory::dims& in_dims, std::int64_t missing) {
    const auto f32 = memory::data_type::f32;
    const memory::desc src(in_dims, f32, memory::format_tag::ndhwc);
    const memory::desc dst(out_dims, f32, memory::format_tag::ndhwc);
    const memory::desc any_weights(
        {weight_.dim(0), weight_.dim(1), taps_.count, weight_.dim(3), weight_.dim(4)}, f32,
        memory::format_tag::any);
    const memory::desc bias({weight_.dim(0)}, f32, memory::format_tag::a);
    const memory::dims strides = {options_.stride_t, options_.stride_hw, options_.stride_hw};
    const memory::dims before = {missing, 0, 0};
    const memory::dims after = {0, 0, 0};
    using Convolution = dnnl::convolution_forward;
    const auto kind = dnnl::prop_kind::forward_inference;
    const auto algorithm = dnnl::algorithm::convolution_direct;
    const Convolution::desc desc =
        bias_.empty()
            ? Convolution::desc(kind, algorithm, src, any_weights, dst, strides, before, after)
            : Convolution::desc(kind, algorithm, src, any_weights, bias, dst, strides, before,
                                after);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (options_.accumulate) {
      dnnl::post_ops operations;
      operations.append_sum(1.0F);
      attributes.set_post_ops(operations);
    }
    const Convolution::primitive_desc primitive(desc, attributes, session_.engine);
    pack(primitive.weights_desc());
    const Tensor scratch = bytes(primitive.scratchpad_desc().get_size());
    std::unordered_map<int, memory> arguments = {
        {DNNL_ARG_SRC, dnnl_memory(src, session_.engine, padded)},
        {DNNL_ARG_WEIGHTS, dnnl_memory(*packed_desc_, session_.engine, packed_.view().data)},
        {DNNL_ARG_DST, dnnl_memory(dst, session_.engine, out)},
        {DNNL_ARG_SCRATCHPAD,
         dnnl_memory(primitive.scratchpad_desc(), session_.engine, scratch.view().data)}};
    if (!bias_.empty()) {
      arguments.emplace(DNNL_ARG_BIAS, dnnl_memory(bias, session_.engine, bias_.data));
    }
    Convolution(primitive).execute(session_.stream, arguments);
    session_.stream.wait();
  }

 private:
  [[nodiscard]] Tensor bytes(std::size_t size) const {
    // One byte keeps the tensor non-empty where nothing is asked for.
    return empty_tensor(ctx_.device, {static_cast<std::int64_t>(size) + 1}, DType::kU8);
  }

  /// The weights in the layout that the primitive chose; kept while it chooses the same.
  void pack(const memory::desc& wanted) {
    if (packed_desc_ && *packed_desc_ == wanted) {
      return;
    }
    packed_ = Tensor();
    packed_ = bytes(wanted.get_size());
    packed_desc_ = wanted;
    const std::int64_t area = weight_.dim(3) * weight_.dim(4);
    const std::int64_t volume = weight_.dim(2) * area;
    const memory::desc plain(
        {weight_.dim(0), weight_.dim(1), taps_.count, weight_.dim(3), weight_.dim(4)},
        memory::data_type::f32,
        memory::dims{weight_.dim(1) * volume, volume, area, weight_.dim(4), 1});
    memory source = dnnl_memory(plain, session_.engine, weight_.f32() + taps_.first * area);
    memory target = dnnl_memory(wanted, session_.engine, packed_.view().data);
    dnnl::reorder(source, target).execute(session_.stream, source, target);
    session_.stream.wait();
  }

  OpContext& ctx_;
  ConstTensorView weight_;
  ConstTensorView bias_;
  Taps taps_;
  const Conv3dOptions& options_;
  DnnlSession session_;
  Tensor packed_;
  std::optional<memory::desc> packed_desc_;
};

}  // namespace

void conv3d(OpContext& ctx, TensorView out, ConstTensorView x, ConstTensorView weight,
            ConstTensorView bias, const Conv3dOptions& options) {
  const std::int64_t batch = x.dim(0);
  const std::int64_t frames = x.dim(1);
  const std::int64_t out_frames = out.dim(1);
  // A lone frame meets one tap; the frames of zeros in front of it are left out altogether.
  const bool lone = frames == 1;
  const Taps taps{.first = lone ? options.past_frames : 0, .count = lone ? 1 : weight.dim(2)};
  const std::int64_t past = lone ? 0 : options.past_frames;

  const std::int64_t padding = options.pad_before + options.pad_after;
  const std::int64_t height = x.dim(2) + padding;
  const std::int64_t width = x.dim(3) + padding;
  const std::int64_t frame_size = height * width * x.dim(4);
  const std::int64_t out_frame_size = out.dim(2) * out.dim(3) * out.dim(4);
  const std::int64_t fit = kPaddedBytes / (frame_size * static_cast<std::int64_t>(sizeof(float)));
  // Whole batch items at a time, or where one is too large, some of its output frames.
  const std::int64_t items = std::clamp<std::int64_t>(fit / frames, 1, batch);
  const std::int64_t outputs =
      fit >= frames
          ? out_frames
          : std::clamp<std::int64_t>((fit - taps.count) / options.stride_t + 1, 1, out_frames);
  const std::int64_t most_frames =
      fit >= frames ? items * frames
                    : std::min(frames, (outputs - 1) * options.stride_t + taps.count);
  Tensor padded = empty_tensor(ctx.device, {most_frames, frame_size});

  const std::int64_t work = out.num_elements() * weight.dim(1) * taps.count / 16;
  const DnnlThreads threads(useful_threads(ctx, work));
  Convolver convolver(ctx, weight, bias, taps, options);
  float* buffer = padded.f32().data();
  for (std::int64_t item = 0; item < batch; item += items) {
    const std::int64_t num_items = std::min(items, batch - item);
    std::int64_t held_begin = 0;  // frames of the item that the buffer holds
    std::int64_t held_end = 0;
    for (std::int64_t first = 0; first < out_frames; first += outputs) {
      ctx.check_cancelled();
      const std::int64_t num_outputs = std::min(outputs, out_frames - first);
      const std::int64_t start = first * options.stride_t - past;
      const std::int64_t begin = std::max<std::int64_t>(0, start);
      // With several items every frame of theirs is taken, so that they follow each other.
      const std::int64_t end =
          num_items > 1 ? frames : start + (num_outputs - 1) * options.stride_t + taps.count;
      MINIACC_REQUIRE(num_items == 1 || num_outputs == out_frames, "conv3d: whole items");
      // The taps of neighbouring outputs overlap: frames that are there are moved, not made again.
      const std::int64_t kept = std::max<std::int64_t>(0, held_end - begin);
      if (kept > 0) {
        std::memmove(buffer, buffer + (begin - held_begin) * frame_size,
                     static_cast<std::size_t>(kept * frame_size) * sizeof(float));
      }
      pad_frames(ctx, buffer + kept * frame_size, x, item * frames + begin + kept,
                 num_items * (end - begin) - kept, options);
      held_begin = begin;
      held_end = end;
      convolver.run(out.f32() + (item * out_frames + first) * out_frame_size,
                    {num_items, out.dim(4), num_outputs, out.dim(2), out.dim(3)}, buffer,
                    {num_items, x.dim(4), end - begin, height, width}, begin - start);
    }
  }
}

}  // namespace miniacc::ops::cpu
