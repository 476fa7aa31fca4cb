#include "kernels/conv3d.h"

#include <cmath>
#include <limits>

#include "kernels/backend_test.h"
#include "reference/reference.h"
#include "support/random.h"

namespace miniacc::testing {
namespace {

using reference::Conv3dShape;

std::int64_t out_size(std::int64_t size, std::int64_t padding, std::int64_t kernel,
                      std::int64_t stride) {
  return (size + padding - kernel) / stride + 1;
}

class Conv3d : public BackendTest {
 protected:
  static Shape out_shape(const Conv3dShape& s) {
    const std::int64_t padding = s.pad_before + s.pad_after;
    return {s.batch, out_size(s.frames, s.past_frames, s.kernel_t, s.stride_t),
            out_size(s.height, padding, s.kernel_hw, s.stride_hw),
            out_size(s.width, padding, s.kernel_hw, s.stride_hw), s.out};
  }
  static ops::Conv3dOptions options(const Conv3dShape& s) {
    return {.stride_t = s.stride_t,
            .stride_hw = s.stride_hw,
            .past_frames = s.past_frames,
            .pad_before = s.pad_before,
            .pad_after = s.pad_after};
  }
  static Shape in_shape(const Conv3dShape& s) {
    return {s.batch, s.frames, s.height, s.width, s.in};
  }
  static Shape weight_shape(const Conv3dShape& s) {
    return {s.out, s.in, s.kernel_t, s.kernel_hw, s.kernel_hw};
  }

  std::vector<float> forward(const Conv3dShape& s, const std::vector<float>& x,
                             const std::vector<float>& weight, const std::vector<float>& bias) {
    return run_identically([&](OpContext& ctx) {
      TensorView out = empty(out_shape(s));
      ops::conv3d(ctx, out, upload(x, in_shape(s)), upload(weight, weight_shape(s)),
                  bias.empty() ? TensorView{} : upload(bias, {s.out}), options(s));
      return out;
    });
  }
};
MINIACC_BACKEND_SUITE(Conv3d);

std::vector<double> doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

TEST_P(Conv3d, MatchesReference) {
  const Conv3dShape cases[] = {
      // batch, frames, height, width, in, out, kernel_t, kernel_hw, strides, past, pad before,
      // after
      {1, 1, 1, 1, 1, 1, 1, 1},
      {1, 3, 3, 3, 1, 1, 3, 3},                   // one output
      {2, 3, 4, 5, 3, 7, 1, 1},                   // pointwise
      {1, 1, 6, 5, 4, 5, 3, 3, 1, 1, 2, 1, 1},    // a picture: one tap of three
      {3, 1, 6, 5, 16, 17, 3, 3, 1, 1, 2, 1, 1},  // several pictures at once
      {1, 5, 7, 6, 3, 32, 3, 3, 1, 1, 2, 1, 1},   // conv_in
      {1, 9, 8, 6, 8, 8, 3, 3, 2, 2, 2, 0, 1},    // downsampling of time and picture
      {1, 5, 9, 7, 8, 6, 3, 3, 1, 2, 2, 0, 1},    // odd sizes
      {2, 4, 5, 5, 5, 3, 3, 3, 2, 1, 2, 1, 1},    // batches of clips
      {1, 2, 2, 2, 6, 4, 3, 3, 1, 1, 2, 1, 1},    // the smallest that reflects
      {1, 5, 4, 4, 64, 48, 3, 3, 1, 1, 2, 1, 1},  // conv_out
      {1, 4, 6, 6, 2, 3, 2, 5, 1, 1, 1, 2, 3},    // other kernels
      {2, 1, 4, 4, 2, 2, 1, 3, 2, 1, 0, 1, 1},    // time stride beyond the frames
      {1, 3, 4, 4, 2, 2, 1, 3, 2, 1, 0, 1, 1},
  };
  for (const Conv3dShape& s : cases) {
    const auto x = random_normal(in_shape(s).num_elements(), 1);
    const auto weight = random_normal(weight_shape(s).num_elements(), 2);
    for (const bool biased : {true, false}) {
      const auto bias = biased ? random_normal(s.out, 3) : std::vector<float>{};
      SCOPED_TRACE(::testing::Message() << in_shape(s).to_string() << " -> " << s.out);
      expect_close(forward(s, x, weight, bias), reference::conv3d(doubles(x), weight, bias, s),
                   tolerance("conv3d"));
    }
  }
}

// More padded frames than the scratch memory holds at once.
TEST_P(Conv3d, LargeFramesInGroupsMatchReference) {
  // Frames of 14 MB: outputs one at a time; two batch items and the one that is left.
  const Conv3dShape cases[] = {{1, 5, 420, 420, 20, 2, 3, 1, 2, 2, 2, 0, 1},
                               {3, 2, 420, 420, 20, 1, 1, 1, 1, 3, 0, 1, 1}};
  for (const Conv3dShape& s : cases) {
    const auto x = random_normal(in_shape(s).num_elements(), 1);
    const auto weight = random_normal(weight_shape(s).num_elements(), 2);
    SCOPED_TRACE(::testing::Message() << in_shape(s).to_string());
    expect_close(forward(s, x, weight, {}), reference::conv3d(doubles(x), weight, {}, s),
                 tolerance("conv3d"));
  }
}

TEST_P(Conv3d, NormalizedInputAccumulates) {
  const Conv3dShape s{2, 3, 5, 6, 10, 7, 3, 3, 1, 1, 2, 1, 1};
  const auto x = random_normal(in_shape(s).num_elements(), 1);
  const auto weight = random_normal(weight_shape(s).num_elements(), 2);
  const auto bias = random_normal(s.out, 3);
  const auto scale = random_normal(s.batch * s.frames * s.in, 4);
  const auto shift = random_normal(s.batch * s.frames * s.in, 5);
  const auto before = random_normal(out_shape(s).num_elements(), 6);
  const auto out = run_identically([&](OpContext& ctx) {
    TensorView result = upload(before, out_shape(s));
    ops::Conv3dOptions with_norm = options(s);
    with_norm.normalize = {upload(scale, {s.batch * s.frames, s.in}),
                           upload(shift, {s.batch * s.frames, s.in})};
    with_norm.accumulate = true;
    ops::conv3d(ctx, result, upload(x, in_shape(s)), upload(weight, weight_shape(s)),
                upload(bias, {s.out}), with_norm);
    return result;
  });
  std::vector<double> activated;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto in = static_cast<std::size_t>(s.in);
    const std::size_t at = i / (in * static_cast<std::size_t>(s.height * s.width)) * in + i % in;
    const double value = static_cast<double>(x[i]) * scale[at] + static_cast<double>(shift[at]);
    activated.push_back(value / (1.0 + std::exp(-value)));
  }
  auto wanted = reference::conv3d(activated, weight, bias, s);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    wanted[i] += before[i];
  }
  expect_close(out, wanted, tolerance("conv3d", "normalized"));
}

// Spec vae.md example 11.11: causal in time; reflected padding of an axis.
TEST_P(Conv3d, WorkedExamples) {
  const std::vector<float> x = {1, 2, 3, 4, 5};
  EXPECT_EQ(forward({1, 5, 1, 1, 1, 1, 3, 1, 1, 1, 2}, x, {0.5F, 1, 2}, {}),
            (std::vector<float>{2, 5, 8.5F, 12, 15.5F}));
  EXPECT_EQ(forward({1, 5, 1, 1, 1, 1, 3, 1, 2, 1, 2}, x, {0.5F, 1, 2}, {}),
            (std::vector<float>{2, 8.5F, 15.5F}));
  // Rows (1,2,3,4) of equal columns; a kernel that picks one tap shows the padded axis.
  std::vector<float> rows;
  for (const float value : {1.0F, 2.0F, 3.0F, 4.0F}) {
    rows.insert(rows.end(), 4, value);
  }
  const auto first_column = [](const std::vector<float>& out, std::size_t width) {
    std::vector<float> column;
    for (std::size_t i = 0; i < out.size(); i += width) {
      column.push_back(out[i]);
    }
    return column;
  };
  EXPECT_EQ(first_column(forward({1, 1, 4, 4, 1, 1, 1, 1, 1, 1, 0, 1, 1}, rows, {1}, {}), 6),
            (std::vector<float>{2, 1, 2, 3, 4, 3}));
  EXPECT_EQ(first_column(forward({1, 1, 4, 4, 1, 1, 1, 1, 1, 1, 0, 0, 1}, rows, {1}, {}), 5),
            (std::vector<float>{1, 2, 3, 4, 3}));
}

TEST_P(Conv3d, NanReachesExactlyTheOutputsThatSeeIt) {
  const Conv3dShape s{1, 5, 6, 6, 1, 1, 3, 3, 1, 1, 2, 1, 1};
  std::vector<float> x(180, 1.0F);
  x[1 * 36 + 3 * 6 + 3] = std::numeric_limits<float>::quiet_NaN();
  const auto out = forward(s, x, std::vector<float>(27, 1.0F), {});
  for (std::int64_t i = 0; i < 180; ++i) {
    const bool sees =
        i / 36 >= 1 && i / 36 <= 3 && std::abs(i / 6 % 6 - 3) <= 1 && std::abs(i % 6 - 3) <= 1;
    EXPECT_EQ(std::isnan(out[static_cast<std::size_t>(i)]), sees) << i;
  }
}

TEST_P(Conv3d, CancelStopsBeforeWork) {
  CancelToken token;
  token.cancel();
  OpContext cancelled = ctx();
  cancelled.cancel = &token;
  TensorView out = empty({1, 1, 2, 2, 1});
  EXPECT_THROW(ops::conv3d(cancelled, out, upload({1, 2, 3, 4}, {1, 1, 2, 2, 1}),
                           upload({1}, {1, 1, 1, 1, 1}), {}, {}),
               ErrorException);
}

}  // namespace
}  // namespace miniacc::testing
