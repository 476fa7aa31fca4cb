#include "kernels/frames.h"

#include <algorithm>
#include <cmath>

#include "kernels/backend_test.h"
#include "support/compare.h"
#include "support/random.h"

namespace miniacc::testing {
namespace {

class Frames : public BackendTest {
 protected:
  [[nodiscard]] std::vector<int> download_u8(const TensorView& view) const {
    std::vector<int> values;
    for (const std::int8_t value :
         download_i8(ConstTensorView(view.data, view.shape, DType::kI8, view.device))) {
      values.push_back(static_cast<std::uint8_t>(value));
    }
    return values;
  }
};
MINIACC_BACKEND_SUITE(Frames);

TEST_P(Frames, PatchesLandWhereTheFormulaSays) {
  constexpr std::int64_t kT = 2;
  constexpr std::int64_t kH = 3;
  constexpr std::int64_t kW = 2;
  constexpr std::int64_t kFrames = 4;
  constexpr std::int64_t kPatch = 3;
  constexpr std::int64_t kTop = 2;
  constexpr std::int64_t kLeft = 5;
  const Shape canvas_shape = {3, 3, 13, 12};
  const std::vector<std::int32_t> frame_index = {-1, 2, 0, -1, 1, -1, -1, -1};
  const auto canvas = random_normal(canvas_shape.num_elements(), 1);
  const std::int64_t width = 3 * kFrames * kPatch * kPatch;
  const auto values = random_normal(kT * kH * kW * width, 2);
  auto weights = random_normal(kH * kPatch * kW * kPatch, 3);
  weights[0] = weights[7] = 0.0F;

  std::vector<float> wanted = canvas;
  for (std::int64_t frame = 0; frame < kT * kFrames; ++frame) {
    const std::int64_t to = frame_index[static_cast<std::size_t>(frame)];
    for (std::int64_t c = 0; c < 3 && to >= 0; ++c) {
      for (std::int64_t y = 0; y < kH * kPatch; ++y) {
        for (std::int64_t x = 0; x < kW * kPatch; ++x) {
          const std::int64_t cell = (frame / kFrames * kH + y / kPatch) * kW + x / kPatch;
          const std::int64_t element =
              ((c * kFrames + frame % kFrames) * kPatch + y % kPatch) * kPatch + x % kPatch;
          const std::int64_t at = ((to * 3 + c) * 13 + kTop + y) * 12 + kLeft + x;
          const float product = weights[static_cast<std::size_t>(y * kW * kPatch + x)] *
                                values[static_cast<std::size_t>(cell * width + element)];
          wanted[static_cast<std::size_t>(at)] += product;
        }
      }
    }
  }
  const TensorView out = upload(canvas, canvas_shape);
  OpContext context = ctx();
  const ops::PatchPlacement place{.t = kT,
                                  .h = kH,
                                  .w = kW,
                                  .frames = kFrames,
                                  .patch = kPatch,
                                  .top = kTop,
                                  .left = kLeft,
                                  .frame_index = upload_i32(frame_index),
                                  .weights = upload(weights, {kH * kPatch, kW * kPatch})};
  ops::add_patches(context, out, upload(values, {kT * kH * kW, width}), place);
  EXPECT_TRUE(identical_to(download(out), wanted));
}

TEST_P(Frames, PatchesOutsideTheCanvasAreRefused) {
  OpContext context = ctx();
  const TensorView canvas = empty({1, 3, 8, 8});
  const TensorView values = empty({1, 3 * 16});
  ops::PatchPlacement place{.t = 1, .h = 1, .w = 1, .frames = 1, .patch = 4, .top = 5, .left = 0};
  place.frame_index = upload_i32({0});
  place.weights = empty({4, 4});
  EXPECT_THROW(ops::add_patches(context, canvas, values, place), InternalError);
  place.top = 0;
  place.left = -1;
  EXPECT_THROW(ops::add_patches(context, canvas, values, place), InternalError);
  place.left = 0;
  place.weights = empty({4, 5});
  EXPECT_THROW(ops::add_patches(context, canvas, values, place), InternalError);
}

TEST_P(Frames, CrossFadeIsTheFormula) {
  constexpr std::int64_t kFrames = 5;
  constexpr std::int64_t kSize = 3 * 7 * 11;
  const auto head = random_normal(kFrames * kSize, 4);
  const auto previous = random_normal(kFrames * kSize, 5);
  std::vector<double> wanted;
  for (std::int64_t i = 0; i < kFrames * kSize; ++i) {
    const double k = static_cast<double>(i / kSize) / 5.0;
    wanted.push_back(static_cast<double>(previous[static_cast<std::size_t>(i)]) * (1.0 - k) +
                     static_cast<double>(head[static_cast<std::size_t>(i)]) * k);
  }
  const TensorView out = upload(head, {kFrames, 3, 7, 11});
  OpContext context = ctx();
  ops::cross_fade(context, out, upload(previous, {kFrames, 3, 7, 11}));
  const std::vector<float> result = download(out);
  EXPECT_TRUE(close_to(result, std::span<const double>(wanted), 2e-7));  // measured: 4e-8
  EXPECT_TRUE(identical_to(std::span(result).first(kSize), std::span(previous).first(kSize)));
}

TEST_P(Frames, PixelsAreScaledClampedAndRoundedToEven) {
  // Scaled by 2 and moved by 0.1, 0.2, 0.3: 0.5 · 255 = 127.5 goes to 128, what is outside to the
  // ends.
  const std::vector<float> planes = {0.2F, -1.0F, 0.15F, 9.0F, 0.1F, 0.35F};
  const TensorView pixels = upload(planes, {1, 3, 1, 2});
  OpContext context = ctx();
  ops::scale_to_unit(context, pixels, {.scale = {2.0F, 2.0F, 2.0F}, .offset = {0.1F, 0.2F, 0.3F}});
  const std::vector<float> unit = download(pixels);
  const std::vector<float> wanted = {0.5F, 0.0F, 0.5F, 1.0F, 0.5F, 1.0F};
  for (std::size_t i = 0; i < unit.size(); ++i) {
    EXPECT_NEAR(unit[i], wanted[i], 1e-6F) << i;
  }
  const TensorView exact = upload({0.5F, 0.0F, 0.1F, 1.0F, 0.3F, 0.9999F}, {1, 3, 1, 2});
  const TensorView rgb = empty({1, 1, 2, 3}, DType::kU8);
  ops::to_rgb8(context, rgb, exact);
  EXPECT_EQ(download_u8(rgb), (std::vector<int>{128, 26, 76, 0, 255, 255}));
}

TEST_P(Frames, ManyPixelsOfManyFrames) {
  constexpr std::int64_t kFrames = 3;
  constexpr std::int64_t kHeight = 40;
  constexpr std::int64_t kWidth = 50;
  const auto values = random_normal(kFrames * 3 * kHeight * kWidth, 6);
  const TensorView pixels = upload(values, {kFrames, 3, kHeight, kWidth});
  const TensorView rgb = empty({kFrames, kHeight, kWidth, 3}, DType::kU8);
  OpContext context = ctx();
  ops::scale_to_unit(context, pixels,
                     {.scale = {0.229F, 0.224F, 0.225F}, .offset = {0.485F, 0.456F, 0.406F}});
  ops::to_rgb8(context, rgb, pixels);
  constexpr float kScale[] = {0.229F, 0.224F, 0.225F};
  constexpr float kOffset[] = {0.485F, 0.456F, 0.406F};
  const std::vector<int> bytes = download_u8(rgb);
  for (std::int64_t frame = 0; frame < kFrames; ++frame) {
    for (std::int64_t c = 0; c < 3; ++c) {
      for (std::int64_t i = 0; i < kHeight * kWidth; ++i) {
        const float value =
            values[static_cast<std::size_t>((frame * 3 + c) * kHeight * kWidth + i)] * kScale[c] +
            kOffset[c];
        const int wanted = static_cast<int>(std::nearbyint(std::clamp(value, 0.0F, 1.0F) * 255.0F));
        ASSERT_EQ(bytes[static_cast<std::size_t>((frame * kHeight * kWidth + i) * 3 + c)], wanted);
      }
    }
  }
}

}  // namespace
}  // namespace miniacc::testing
