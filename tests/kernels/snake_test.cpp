#include "kernels/snake.h"

#include <cmath>
#include <limits>

#include "kernels/backend_test.h"
#include "reference/reference.h"
#include "support/random.h"

namespace miniacc::testing {
namespace {

class Snake : public BackendTest {
 protected:
  static std::vector<float> taps() {
    const auto exact = reference::antialiasing_taps();
    return {exact.begin(), exact.end()};
  }

  std::vector<float> run(const std::vector<float>& x, const std::vector<float>& alpha,
                         const std::vector<float>& beta, const std::vector<float>& up,
                         const std::vector<float>& down, const Shape& shape) {
    return run_identically([&](OpContext& ctx) {
      TensorView out = empty(shape);
      ops::antialiased_snake_beta(ctx, out, upload(x, shape), upload(alpha, {shape[1]}),
                                  upload(beta, {shape[1]}), upload(up, {12}), upload(down, {12}));
      return out;
    });
  }
};
MINIACC_BACKEND_SUITE(Snake);

TEST_P(Snake, MatchesReferenceAtEveryLengthAroundItsPieces) {
  const auto up = random_normal(12, 4);  // asymmetric: an op that flips a filter fails
  const auto down = random_normal(12, 5);
  for (const std::int64_t length : {1, 2, 3, 5, 6, 7, 16, 511, 512, 513, 515, 1030}) {
    const auto x = random_normal(2 * 3 * length, 1);
    const auto alpha = random_normal(3, 2);
    const auto beta = random_normal(3, 3);
    SCOPED_TRACE(length);
    expect_close(run(x, alpha, beta, up, down, {2, 3, length}),
                 reference::antialiased_snake_beta(x, alpha, beta, up, down, 2, 3, length),
                 tolerance("antialiased_snake_beta"));
  }
}

TEST_P(Snake, MatchesReferenceOnManyChannels) {
  const auto x = random_normal(64 * 2000, 1);
  const auto alpha = random_normal(64, 2);
  const auto beta = random_normal(64, 3);
  expect_close(run(x, alpha, beta, taps(), taps(), {1, 64, 2000}),
               reference::antialiased_snake_beta(x, alpha, beta, taps(), taps(), 1, 64, 2000),
               tolerance("antialiased_snake_beta"));
}

// Arguments of the sine beyond what the fast range reduction holds. The argument itself carries
// half a unit in the last place of 1e5, so only the size of the answer can be asked for.
TEST_P(Snake, HugeArgumentsStayBounded) {
  const std::vector<float> x(40, 3e5F);
  const auto out = run(x, {2.0F}, {0.0F}, taps(), taps(), {1, 1, 40});
  for (const float value : out) {
    EXPECT_GT(value, 3e5F - 1.0F);
    EXPECT_LT(value, 3e5F + 2.0F);
  }
}

TEST_P(Snake, ConstantStaysConstantThroughTheFilters) {
  const std::vector<float> x(20, 0.7F);
  // beta so large that the snake term vanishes: only the two filters act.
  for (const float value : run(x, {0.0F}, {60.0F}, taps(), taps(), {1, 1, 20})) {
    EXPECT_NEAR(value, 0.7, 1e-6);
  }
}

// Spec vae.md examples 11.14 and 11.15.
TEST_P(Snake, WorkedExamples) {
  const auto impulse = run({1, 0, 0, 0}, {0.0F}, {60.0F}, taps(), taps(), {1, 1, 4});
  const double filtered[] = {0.932319, 0.065952, -0.044181, 0.012966};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(impulse[i], filtered[i], 1e-6);
  }
  const auto out = run({1, -0.5F, 0.25F, 0}, {0.5F}, {-0.25F}, taps(), taps(), {1, 1, 4});
  const double expected[] = {1.865215, 0.071411, 0.308610, 0.109341};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(out[i], expected[i], 1e-6);
  }
  // A constant signal sees the plain SnakeBeta.
  const auto plain = run({0.7F, 0.7F, 0.7F}, {0.5F}, {-0.25F}, taps(), taps(), {1, 1, 3});
  EXPECT_NEAR(plain[1], 1.7736864, 1e-6);
}

TEST_P(Snake, NanAndInfinityReachTheirSurroundingsOnly) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> x(1200, 0.5F);
    x[600] = bad;
    const auto out = run(x, {0.1F}, {0.1F}, taps(), taps(), {1, 1, 1200});
    EXPECT_FALSE(std::isfinite(out[600]));
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (i < 600 - 6 || i > 600 + 6) {
        ASSERT_TRUE(std::isfinite(out[i])) << i;
      }
    }
  }
}

// The reference's taps are the spec's table.
TEST(SnakeReference, TapsMatchTheSpec) {
  const double table[] = {0.002028966,  0.009389464, -0.025543464,
                          -0.057657375, 0.128572609, 0.4432098};
  const auto taps = reference::antialiasing_taps();
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(taps[i], table[i], 1e-8);
    EXPECT_NEAR(taps[11 - i], table[i], 1e-8);
  }
}

TEST_P(Snake, LinearAlphaMatchesReference) {
  constexpr std::int64_t kChannels = 5;
  for (const std::int64_t length : {1, 7, 511, 513, 1500}) {
    auto x = random_normal(2 * kChannels * length, 1);
    x[0] = 3e5F;  // beyond the fast sine
    std::vector<float> alpha = {0.5F, 1.5F, -0.7F, 20.0F, 1.0F};
    const auto run = [&](bool in_place) {
      return run_identically([&](OpContext& ctx) {
        TensorView input = upload(x, {2, kChannels, length});
        TensorView out = in_place ? input : empty({2, kChannels, length});
        ops::snake(ctx, out, input, upload(alpha, {kChannels}));
        return out;
      });
    };
    const auto out = run(false);
    EXPECT_EQ(out, run(true));
    // The sine of so large an argument is as exact as the product that it is taken of.
    const std::vector<float> tail(out.begin() + 1, out.end());
    auto wanted = reference::snake(x, alpha, 2, kChannels, length);
    EXPECT_NEAR(out[0], wanted[0], 2.0);
    wanted.erase(wanted.begin());
    expect_close(tail, wanted, tolerance("snake"));
  }
}

// Spec vae.md example 11.15.
TEST_P(Snake, LinearAlphaWorkedExample) {
  OpContext context = ctx();
  TensorView out = empty({1, 1, 1});
  ops::snake(context, out, upload({0.7F}, {1, 1, 1}), upload({1.5F}, {1}));
  EXPECT_NEAR(download(out)[0], 1.2016154, 1e-6);
}

}  // namespace
}  // namespace miniacc::testing
