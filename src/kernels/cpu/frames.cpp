#include <algorithm>
#include <cmath>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace miniacc::ops::cpu {

void add_patches(OpContext& ctx, TensorView canvas, ConstTensorView values,
                 const PatchPlacement& place) {
  const std::int64_t patch = place.patch;
  const std::int64_t tile_width = place.w * patch;
  const std::int64_t plane_size = canvas.dim(2) * canvas.dim(3);
  const auto* frame_index = place.frame_index.as<std::int32_t>();
  MINIACC_REQUIRE(std::all_of(frame_index, frame_index + place.frame_index.num_elements(),
                              [&](std::int32_t frame) { return frame < canvas.dim(0); }),
                  "add_patches: a frame outside the canvas");
  // A task is a row of cells of one step: no two write to the same pixel.
  parallel_for(ctx, place.t * place.h, place.w * values.dim(1), [&](std::int64_t task) {
    const std::int64_t it = task / place.h;
    const std::int64_t ih = task % place.h;
    for (std::int64_t iw = 0; iw < place.w; ++iw) {
      const float* cell = values.f32() + (task * place.w + iw) * values.dim(1);
      for (std::int64_t plane = 0; plane < 3 * place.frames; ++plane) {
        const std::int64_t frame = frame_index[it * place.frames + plane % place.frames];
        if (frame < 0) {
          continue;
        }
        for (std::int64_t row = 0; row < patch; ++row) {
          const std::int64_t y = ih * patch + row;
          const float* source = cell + (plane * patch + row) * patch;
          const float* weights = place.weights.f32() + y * tile_width + iw * patch;
          float* target = canvas.f32() + (frame * 3 + plane / place.frames) * plane_size +
                          (place.top + y) * canvas.dim(3) + place.left + iw * patch;
          for (std::int64_t i = 0; i < patch; ++i) {
            if (weights[i] != 0.0F) {
              target[i] += weights[i] * source[i];
            }
          }
        }
      }
    }
  });
}

void cross_fade(OpContext& ctx, TensorView head, ConstTensorView previous) {
  const std::int64_t frames = head.dim(0);
  const std::int64_t size = head.num_elements() / frames;
  parallel_for(ctx, frames, size, [&](std::int64_t k) {
    const double ramp = static_cast<double>(k) / static_cast<double>(frames);
    const auto weight = static_cast<float>(ramp);
    const auto previous_weight = static_cast<float>(1.0 - ramp);
    float* target = head.f32() + k * size;
    const float* old = previous.f32() + k * size;
    for (std::int64_t i = 0; i < size; ++i) {
      target[i] = old[i] * previous_weight + target[i] * weight;
    }
  });
}

void scale_to_unit(OpContext& ctx, TensorView pixels, const ChannelScale& scale) {
  const std::int64_t area = pixels.dim(2) * pixels.dim(3);
  parallel_for(ctx, pixels.dim(0) * 3, area, [&](std::int64_t plane) {
    const auto channel = static_cast<std::size_t>(plane % 3);
    float* values = pixels.f32() + plane * area;
    for (std::int64_t i = 0; i < area; ++i) {
      values[i] = std::clamp(values[i] * scale.scale[channel] + scale.offset[channel], 0.0F, 1.0F);
    }
  });
}

void to_rgb8(OpContext& ctx, TensorView rgb, ConstTensorView pixels) {
  const std::int64_t area = pixels.dim(2) * pixels.dim(3);
  auto* bytes = rgb.as<std::uint8_t>();
  parallel_for(ctx, pixels.dim(0) * 3, area, [&](std::int64_t plane) {
    const float* source = pixels.f32() + plane * area;
    std::uint8_t* target = bytes + plane / 3 * area * 3 + plane % 3;
    for (std::int64_t i = 0; i < area; ++i) {
      target[3 * i] = static_cast<std::uint8_t>(std::nearbyint(source[i] * 255.0F));
    }
  });
}

}  // namespace miniacc::ops::cpu
