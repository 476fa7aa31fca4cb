#include "kernels/frames.h"

#include "kernels/contract.h"
#include "kernels/cpu/ops.h"
#include "kernels/cuda/ops.h"
#include "kernels/dispatch.h"

namespace miniacc::ops {
namespace {

bool is_rgb_planes(const ConstTensorView& pixels) {
  return pixels.shape.rank() == 4 && pixels.dim(1) == 3 && pixels.is_contiguous() &&
         pixels.dtype == DType::kF32;
}

}  // namespace

void add_patches(OpContext& ctx, TensorView canvas, ConstTensorView values,
                 const PatchPlacement& place) {
  MINIACC_REQUIRE(is_rgb_planes(canvas), "add_patches: canvas is [n, 3, H, W] f32");
  MINIACC_REQUIRE(values.shape == Shape({place.t * place.h * place.w,
                                         3 * place.frames * place.patch * place.patch}) &&
                      values.is_contiguous(),
                  "add_patches: values are [t·h·w, 3·frames·patch·patch]");
  MINIACC_REQUIRE(place.top >= 0 && place.left >= 0 &&
                      place.top + place.h * place.patch <= canvas.dim(2) &&
                      place.left + place.w * place.patch <= canvas.dim(3),
                  "add_patches: the tile lies within the canvas");
  MINIACC_REQUIRE(place.weights.shape == Shape({place.h * place.patch, place.w * place.patch}) &&
                      place.weights.is_contiguous(),
                  "add_patches: weights are [h·patch, w·patch]");
  MINIACC_REQUIRE(place.frame_index.shape == Shape({place.t * place.frames}) &&
                      place.frame_index.dtype == DType::kI32 && place.frame_index.is_contiguous(),
                  "add_patches: frame_index is [t·frames] i32");
  MINIACC_REQUIRE(all_f32_on(canvas.device, {canvas, values, place.weights}) &&
                      all_on(canvas.device, {place.frame_index}),
                  "add_patches: on one device");
  MINIACC_DISPATCH(add_patches, ctx, canvas, values, place);
}

void cross_fade(OpContext& ctx, TensorView head, ConstTensorView previous) {
  MINIACC_REQUIRE(head.shape == previous.shape && head.is_contiguous() && previous.is_contiguous(),
                  "cross_fade: head and previous are contiguous and of one shape");
  MINIACC_REQUIRE(all_f32_on(head.device, {head, previous}), "cross_fade: f32 on one device");
  if (head.num_elements() == 0) {
    return;
  }
  MINIACC_DISPATCH(cross_fade, ctx, head, previous);
}

void scale_to_unit(OpContext& ctx, TensorView pixels, const ChannelScale& scale) {
  MINIACC_REQUIRE(is_rgb_planes(pixels), "scale_to_unit: pixels are [n, 3, H, W] f32");
  MINIACC_DISPATCH(scale_to_unit, ctx, pixels, scale);
}

void to_rgb8(OpContext& ctx, TensorView rgb, ConstTensorView pixels) {
  MINIACC_REQUIRE(is_rgb_planes(pixels) && rgb.dtype == DType::kU8 && rgb.is_contiguous() &&
                      rgb.device == pixels.device &&
                      rgb.shape == Shape({pixels.dim(0), pixels.dim(2), pixels.dim(3), 3}),
                  "to_rgb8: rgb [n, H, W, 3] u8 from pixels [n, 3, H, W]");
  MINIACC_DISPATCH(to_rgb8, ctx, rgb, pixels);
}

}  // namespace miniacc::ops
