#include "kernels/conv1d.h"

#include <cmath>
#include <limits>

#include "kernels/backend_test.h"
#include "reference/reference.h"
#include "support/random.h"

namespace miniacc::testing {
namespace {

using reference::ConvShape;

class Conv1d : public BackendTest {
 protected:
  static ops::Conv1dOptions options(const ConvShape& s) {
    return {.stride = s.stride, .padding = s.padding, .dilation = s.dilation};
  }

  std::vector<float> forward(const ConvShape& s, const std::vector<float>& x,
                             const std::vector<float>& weight, const std::vector<float>& bias) {
    const std::int64_t length =
        (s.length + 2 * s.padding - s.dilation * (s.kernel - 1) - 1) / s.stride + 1;
    return run_identically([&](OpContext& ctx) {
      TensorView out = empty({s.batch, s.out, length});
      ops::conv1d(ctx, out, upload(x, {s.batch, s.in, s.length}),
                  upload(weight, {s.out, s.in, s.kernel}),
                  bias.empty() ? TensorView{} : upload(bias, {s.out}), options(s));
      return out;
    });
  }

  std::vector<float> transposed(const ConvShape& s, const std::vector<float>& x,
                                const std::vector<float>& weight, const std::vector<float>& bias) {
    const std::int64_t length = (s.length - 1) * s.stride - 2 * s.padding + s.kernel;
    return run_identically([&](OpContext& ctx) {
      TensorView out = empty({s.batch, s.out, length});
      ops::conv_transpose1d(ctx, out, upload(x, {s.batch, s.in, s.length}),
                            upload(weight, {s.in, s.out, s.kernel}),
                            bias.empty() ? TensorView{} : upload(bias, {s.out}), options(s));
      return out;
    });
  }
};
MINIACC_BACKEND_SUITE(Conv1d);

TEST_P(Conv1d, MatchesReference) {
  const ConvShape cases[] = {
      // batch, in, out, length, kernel, stride, padding, dilation
      {1, 1, 1, 1, 1},
      {1, 1, 1, 3, 3},                // one output
      {2, 3, 5, 64, 1},               // pointwise
      {1, 2, 4, 63, 3, 1, 1, 1},      // register tile - 1
      {1, 2, 4, 65, 3, 1, 1, 1},      // register tile + 1
      {2, 8, 8, 2049, 11, 1, 25, 5},  // a resblock of the audio decoder, task piece + 1
      {1, 16, 16, 700, 7, 1, 9, 3},
      {1, 8, 1, 801, 7, 1, 3, 1},  // conv_post
      {2, 32, 9, 40, 7, 1, 3, 1},
      {1, 1, 6, 800, 7, 1, 3, 1},  // encoder block.0
      {2, 4, 8, 801, 4, 2, 1, 1},  // strided encoder layers
      {1, 4, 6, 320, 8, 4, 2, 1},
      {1, 3, 7, 800, 10, 5, 3, 1},
      {1, 2, 3, 50, 3, 3, 4, 2},  // stride and dilation together
      {1, 2, 3, 9, 2, 7, 0, 4},   // stride beyond the kernel
      {1, 2, 2, 2, 3, 1, 6, 1},   // more padding than input
      {1, 2, 2, 2, 3, 2, 9, 3},
  };
  for (const ConvShape& s : cases) {
    const auto x = random_normal(s.batch * s.in * s.length, 1);
    const auto weight = random_normal(s.out * s.in * s.kernel, 2);
    for (const bool biased : {true, false}) {
      const auto bias = biased ? random_normal(s.out, 3) : std::vector<float>{};
      SCOPED_TRACE(::testing::Message() << s.in << "->" << s.out << " length " << s.length
                                        << " kernel " << s.kernel << " stride " << s.stride);
      expect_close(forward(s, x, weight, bias), reference::conv1d(x, weight, bias, s),
                   tolerance("conv1d"));
    }
  }
}

TEST_P(Conv1d, TransposedMatchesReference) {
  const ConvShape cases[] = {
      {1, 1, 1, 1, 1},          {1, 3, 2, 9, 3, 1, 1},
      {2, 8, 4, 1025, 4, 2, 1},  // decoder upsamplers
      {1, 16, 8, 207, 9, 5, 2}, {1, 2, 5, 64, 9, 5, 0},
      {1, 2, 3, 5, 2, 5, 0},  // gaps: outputs that no tap reaches
      {1, 2, 3, 5, 10, 3, 4},   {1, 2, 3, 2, 5, 1, 2},
  };
  for (const ConvShape& s : cases) {
    const auto x = random_normal(s.batch * s.in * s.length, 1);
    const auto weight = random_normal(s.in * s.out * s.kernel, 2);
    for (const bool biased : {true, false}) {
      const auto bias = biased ? random_normal(s.out, 3) : std::vector<float>{};
      SCOPED_TRACE(::testing::Message() << s.in << "->" << s.out << " length " << s.length
                                        << " kernel " << s.kernel << " stride " << s.stride);
      expect_close(transposed(s, x, weight, bias), reference::conv_transpose1d(x, weight, bias, s),
                   tolerance("conv_transpose1d"));
    }
  }
}

// Spec vae.md examples 11.17 and the causal convolutions of 11.11 (zeros put in front by hand).
TEST_P(Conv1d, WorkedExamples) {
  EXPECT_EQ(transposed({1, 1, 1, 3, 4, 2, 1}, {1, 2, 3}, {1, 10, 100, 1000}, {}),
            (std::vector<float>{10, 102, 1020, 203, 2030, 300}));
  EXPECT_EQ(transposed({1, 1, 1, 2, 9, 5, 2}, {1, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9}, {}),
            (std::vector<float>{3, 4, 5, 8, 11, 14, 17, 10, 12, 14}));
  EXPECT_EQ(forward({1, 1, 1, 10, 10, 5, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
                    std::vector<float>(10, 1.0F), {}),
            (std::vector<float>{28, 52}));
  const std::vector<float> causal = {0, 0, 1, 2, 3, 4, 5};
  EXPECT_EQ(forward({1, 1, 1, 7, 3}, causal, {0.5F, 1, 2}, {}),
            (std::vector<float>{2, 5, 8.5F, 12, 15.5F}));
  EXPECT_EQ(forward({1, 1, 1, 7, 3, 2}, causal, {0.5F, 1, 2}, {}),
            (std::vector<float>{2, 8.5F, 15.5F}));
}

TEST_P(Conv1d, NanReachesExactlyTheOutputsThatSeeIt) {
  std::vector<float> x(200, 1.0F);
  x[100] = std::numeric_limits<float>::quiet_NaN();
  const auto out = forward({1, 1, 1, 200, 3, 1, 2, 2}, x, {1, 1, 1}, {});
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(std::isnan(out[i]), i == 98 || i == 100 || i == 102) << i;
  }
}

TEST_P(Conv1d, OutliersAndDenormalsKeepTheirPlaces) {
  auto x = random_normal(4 * 300, 1);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] *= i % 50 == 7 ? 1e5F : i % 50 == 8 ? 1e-40F : 1.0F;
  }
  const ConvShape s{1, 4, 4, 300, 5, 1, 2};
  const auto weight = random_normal(4 * 4 * 5, 2);
  expect_close(forward(s, x, weight, {}), reference::conv1d(x, weight, {}, s), tolerance("conv1d"));
}

}  // namespace
}  // namespace miniacc::testing
