#include "kernels/group_norm.h"

#include <cmath>
#include <limits>

#include "kernels/backend_test.h"
#include "reference/reference.h"
#include "support/random.h"

namespace miniacc::testing {
namespace {

struct GroupNormShape {
  std::int64_t frames, positions, channels, groups;
};

class GroupNorm : public BackendTest {
 protected:
  /// The normalised frames: the op's factors, applied here in double.
  std::vector<float> normalized(const GroupNormShape& s, const std::vector<float>& x,
                                const std::vector<float>& weight, const std::vector<float>& bias,
                                float eps = 1e-6F) {
    const auto factors = run_identically([&](OpContext& ctx) {
      TensorView both = empty({2, s.frames, s.channels});
      const auto half = [&](std::int64_t i) {
        return both.narrow(0, i, 1).reshape(Shape({s.frames, s.channels}));
      };
      ops::group_norm_coefficients(
          ctx, half(0), half(1), upload(x, {s.frames, s.positions, s.channels}),
          upload(weight, {s.channels}), upload(bias, {s.channels}), s.groups, eps);
      return both;
    });
    std::vector<float> out;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto channels = static_cast<std::size_t>(s.channels);
      const std::size_t frame = i / (channels * static_cast<std::size_t>(s.positions));
      const std::size_t at = frame * channels + i % channels;
      const double shift = factors[at + static_cast<std::size_t>(s.frames * s.channels)];  // NOLINT
      out.push_back(static_cast<float>(static_cast<double>(x[i]) * factors[at] + shift));
    }
    return out;
  }
};
MINIACC_BACKEND_SUITE(GroupNorm);

TEST_P(GroupNorm, MatchesReference) {
  const GroupNormShape cases[] = {{1, 1, 2, 1},     {1, 1, 4, 2},     {3, 63, 6, 3},
                                  {2, 64, 32, 32},  {2, 65, 48, 2},   {5, 129, 10, 5},
                                  {1, 257, 96, 32}, {2, 4096, 64, 32}};
  for (const GroupNormShape& s : cases) {
    auto x = random_normal(s.frames * s.positions * s.channels, 1);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = x[i] * 3.0F + 1.0F + static_cast<float>(i % 5);
    }
    const auto weight = random_normal(s.channels, 2);
    const auto bias = random_normal(s.channels, 3);
    SCOPED_TRACE(::testing::Message() << s.frames << "x" << s.positions << "x" << s.channels);
    expect_close(normalized(s, x, weight, bias),
                 reference::group_norm(x, weight, bias, s.frames, s.positions, s.channels, s.groups,
                                       static_cast<double>(1e-6F)),
                 tolerance("group_norm"));
  }
}

// Spec vae.md example 11.6.
TEST_P(GroupNorm, WorkedExample) {
  const auto out = normalized({2, 4, 1, 1}, {1, 2, 3, 4, 10, 10, 10, 14}, {1}, {0});
  const std::vector<double> wanted = {-1.341640, -0.447213, 0.447213,  1.341640,
                                      -0.577350, -0.577350, -0.577350, 1.732051};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(out[i], wanted[i], 2e-6) << i;
  }
}

TEST_P(GroupNorm, AConstantFrameBecomesTheBias) {
  const auto out = normalized({1, 100, 4, 2}, std::vector<float>(400, 7.0F), {2, 2, 2, 2},
                              {0.5F, -0.5F, 0.25F, 0});
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_NEAR(out[i], (std::array{0.5, -0.5, 0.25, 0.0})[i % 4], 2e-3) << i;
  }
}

TEST_P(GroupNorm, NanStaysInItsFrameAndGroup) {
  const GroupNormShape s{2, 70, 4, 2};
  auto x = random_normal(s.frames * s.positions * s.channels, 1);
  x[static_cast<std::size_t>(66 * s.channels + 1)] = std::numeric_limits<float>::quiet_NaN();
  const auto out = normalized(s, x, {1, 1, 1, 1}, {0, 0, 0, 0});
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(std::isnan(out[i]), i < 280 && i % 4 < 2) << i;
  }
}

}  // namespace
}  // namespace miniacc::testing
