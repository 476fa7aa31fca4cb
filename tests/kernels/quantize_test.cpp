#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/backend_test.h"
#include "kernels/linear.h"
#include "reference/reference.h"
#include "support/compare.h"
#include "support/random.h"

namespace miniacc::testing {
namespace {

class Quantize : public BackendTest {};
MINIACC_BACKEND_SUITE(Quantize);

TEST_P(Quantize, RoundsHalfToEvenAndScalesByTheLargest) {
  OpContext context = ctx();
  // Row peaks of 127 make the scale 1: values are their own quotients.
  TensorView out = empty({2, 6}, DType::kI8);
  TensorView scale = empty({2});
  ops::quantize_rows(context, out, scale,
                     upload({127, 0.5, 1.5, 2.5, -0.5, -1.5, -254, 1, 3, 5, 100, 0}, {2, 6}));
  EXPECT_EQ(download(scale), (std::vector<float>{1, 2}));
  EXPECT_EQ(download_i8(out),
            (std::vector<std::int8_t>{127, 0, 2, 2, 0, -2, -127, 0, 2, 2, 50, 0}));
}

TEST_P(Quantize, OfZerosDenormalsAndNonFinite) {
  OpContext context = ctx();
  const float denormal = std::numeric_limits<float>::denorm_min();
  const float inf = std::numeric_limits<float>::infinity();
  const float largest = std::numeric_limits<float>::max();
  TensorView out = empty({5, 2}, DType::kI8);
  TensorView scale = empty({5});
  ops::quantize_rows(
      context, out, scale,
      upload({0, -0.0F, denormal, -denormal, std::nanf(""), 1, inf, 1, largest, -largest}, {5, 2}));
  const auto scales = download(scale);
  const auto values = download_i8(out);
  EXPECT_EQ(scales[0], 1.0F);
  EXPECT_EQ(values[0], 0);
  EXPECT_EQ(scales[1] * static_cast<float>(values[2]), denormal);
  EXPECT_EQ(scales[1] * static_cast<float>(values[3]), -denormal);
  EXPECT_TRUE(std::isnan(scales[2]));
  EXPECT_TRUE(std::isnan(scales[3]));
  EXPECT_EQ(values[8], 127);
  EXPECT_EQ(values[9], -127);
}

TEST_P(Quantize, ErrsByAtMostHalfAStep) {
  for (const auto& [rows, k] :
       {std::pair<std::int64_t, std::int64_t>{40, 301}, {9, 512}, {9, 513}, {3, 5376}}) {
    const auto x = random_normal(rows * k, 1);
    OpContext context = ctx();
    TensorView out = empty({rows, k}, DType::kI8);
    TensorView scale = empty({rows});
    ops::quantize_rows(context, out, scale, upload(x, {rows, k}));
    const auto scales = download(scale);
    const auto values = download_i8(out);
    for (std::int64_t row = 0; row < rows; ++row) {
      const float step = scales[static_cast<std::size_t>(row)];
      float peak = 0.0F;
      for (auto i = static_cast<std::size_t>(row * k); i < static_cast<std::size_t>((row + 1) * k);
           ++i) {
        peak = std::max(peak, std::fabs(x[i]));
        ASSERT_LE(std::fabs(static_cast<float>(values[i]) * step - x[i]), 0.50001F * step) << i;
      }
      ASSERT_EQ(step, peak / 127.0F) << row;
    }
  }
}

TEST_P(Quantize, RotateRowsMatchesTheDenseMatrixAndUndoesItself) {
  for (const auto& [rows, k, group] :
       {std::tuple<std::int64_t, std::int64_t, std::int64_t>{1, 4, 4},
        {3, 48, 16},
        {65, 512, 256},
        {2, 4096, 4096}}) {
    const auto x = random_normal(rows * k, 1);
    TensorView rotated = upload(x, {rows, k});
    OpContext context = ctx();
    ops::rotate_rows(context, rotated, group);
    expect_close(download(rotated), reference::rotate(x, rows, k, group), tolerance("rotate_rows"));
    ops::rotate_rows(context, rotated, group);
    EXPECT_TRUE(close_to(download(rotated), x, 1e-6));
  }
}

}  // namespace
}  // namespace miniacc::testing
