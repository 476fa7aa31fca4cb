#include "kernels/rope.h"

#include <cmath>
#include <numbers>

#include "kernels/backend_test.h"
#include "reference/reference.h"
#include "support/random.h"

namespace miniacc::testing {
namespace {

class Rope : public BackendTest {};
MINIACC_BACKEND_SUITE(Rope);

TEST_P(Rope, MatchesReference) {
  struct Case {
    std::int64_t rows, heads, head_dim, n;
  };
  for (const Case& c :
       {Case{1, 1, 2, 1}, {3, 5, 9, 3}, {7, 19, 20, 10}, {257, 4, 64, 24}, {129, 2, 128, 48}}) {
    const auto x = random_normal(c.rows * c.heads * c.head_dim, 1);
    const auto cos = random_normal(c.rows * c.n, 2);
    const auto sin = random_normal(c.rows * c.n, 3);
    const auto out = run_identically([&](OpContext& ctx) {
      TensorView result = upload(x, {c.rows, c.heads, c.head_dim});
      ops::apply_rope(ctx, result, upload(cos, {c.rows, c.n}), upload(sin, {c.rows, c.n}));
      return result;
    });
    expect_close(out, reference::rope(x, cos, sin, c.rows, c.heads, c.head_dim, c.n),
                 tolerance("apply_rope"));
  }
}

// q of a fused [rows, q|k|v] projection: only its columns may change.
TEST_P(Rope, LeavesTheRestOfAStridedBufferAlone) {
  constexpr std::int64_t kRows = 4;
  const auto qkv = random_normal(kRows * 3 * 16, 1);
  const auto cos = random_normal(kRows * 3, 2);
  const auto sin = random_normal(kRows * 3, 3);
  TensorView buffer = upload(qkv, {kRows, 6, 8});
  OpContext context = ctx();
  ops::apply_rope(context, buffer.narrow(1, 2, 2), upload(cos, {kRows, 3}),
                  upload(sin, {kRows, 3}));
  std::vector<float> k;
  for (std::int64_t r = 0; r < kRows; ++r) {
    k.insert(k.end(), qkv.begin() + r * 48 + 16, qkv.begin() + r * 48 + 32);
  }
  expect_close(download(buffer.narrow(1, 2, 2)), reference::rope(k, cos, sin, kRows, 2, 8, 3),
               tolerance("apply_rope"));
  const auto after = download(buffer);
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (i % 48 < 16 || i % 48 >= 32) {
      ASSERT_EQ(after[i], qkv[i]) << i;
    }
  }
}

// Spec model.md §9 example 11: position (5, 1.5, -2), x_i = (i + 1) / 100.
TEST_P(Rope, WorkedExampleOfTheTransformer) {
  const double position[3] = {5.0, 1.5, -2.0};
  std::vector<float> cos;
  std::vector<float> sin;
  for (const double p : position) {
    for (int j = 0; j < 16; ++j) {
      const double angle = p * std::pow(10000.0, -2.0 * j / 32.0);
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  std::vector<float> x;
  for (int i = 0; i < 128; ++i) {
    x.push_back(static_cast<float>(i + 1) / 100.0F);
  }
  TensorView y = upload(x, {1, 1, 128});
  OpContext context = ctx();
  ops::apply_rope(context, y, upload(cos, {1, 48}), upload(sin, {1, 48}));
  const auto out = download(y);
  const std::pair<std::size_t, double> expected[] = {
      {0, .47271},   {1, -.180889},  {16, -.636346}, {32, .599202}, {47, .480341}, {48, .129405},
      {64, .215553}, {80, -.637147}, {95, .959829},  {96, .97},     {127, 1.28}};
  for (const auto& [i, value] : expected) {
    EXPECT_NEAR(out[i], value, 1e-6) << i;
  }
}

// Spec vae.md example 11.4: token (0, 3, 15) of a 7x16x16 tile.
TEST_P(Rope, WorkedExampleOfTheVideoVae) {
  const double position[3] = {-6.0 / 7.0, -0.5625, 0.9375};
  std::vector<float> cos;
  std::vector<float> sin;
  for (const double p : position) {
    for (int k = 0; k < 8; ++k) {
      const double angle = 2.0 * std::numbers::pi * p * std::pow(100.0, -k / 8.0);
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  std::vector<float> x(64, 1.0F);
  std::fill(x.begin() + 24, x.begin() + 48, 2.0F);
  TensorView y = upload(x, {1, 1, 64});
  OpContext context = ctx();
  ops::apply_rope(context, y, upload(cos, {1, 24}), upload(sin, {1, 24}));
  const auto out = download(y);
  EXPECT_NEAR(out[0], -0.940173, 1e-6);
  EXPECT_NEAR(out[24], 2.028811, 1e-6);
  EXPECT_NEAR(out[9], 1.424145, 1e-6);
  EXPECT_NEAR(out[33], -1.723894, 1e-6);
  EXPECT_NEAR(out[23], 0.785403, 1e-6);
  EXPECT_NEAR(out[47], 2.093595, 1e-6);
  EXPECT_EQ(out[48], 1.0F);
}

}  // namespace
}  // namespace miniacc::testing
