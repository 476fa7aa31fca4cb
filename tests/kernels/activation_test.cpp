#include "kernels/activation.h"

#include <cmath>
#include <limits>

#include "kernels/backend_test.h"
#include "reference/reference.h"
#include "support/compare.h"
#include "support/random.h"

namespace miniacc::testing {
namespace {

class Activation : public BackendTest {};
MINIACC_BACKEND_SUITE(Activation);

TEST_P(Activation, SiluMatchesReference) {
  for (const std::int64_t size : {1, 7, 16, 17, 8191, 8193, 40001}) {
    std::vector<float> x = random_normal(size, 1);
    x[0] = -3.0F;
    const auto out = run_identically([&](OpContext& ctx) {
      TensorView result = empty({size});
      ops::silu(ctx, result, upload(x, {size}));
      return result;
    });
    expect_close(out, reference::silu(x), tolerance("silu"));
  }
}

TEST_P(Activation, SiluIsAccurateOverTheWholeRange) {
  std::vector<float> x;
  for (float magnitude = 1e-40F; magnitude < 1e5F; magnitude *= 1.7F) {
    x.push_back(magnitude);
    x.push_back(-magnitude);
  }
  const auto size = static_cast<std::int64_t>(x.size());
  TensorView out = empty({size});
  OpContext context = ctx();
  ops::silu(context, out, upload(x, {size}));
  const auto values = download(out);
  const auto expected = reference::silu(x);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i], 3e-7 * std::fabs(expected[i]) + 1e-44) << x[i];
  }
}

TEST_P(Activation, SiluMayRunInPlaceAndPassesNanAndInfinity) {
  const float inf = std::numeric_limits<float>::infinity();
  TensorView x = upload({std::nanf(""), inf, 0.0F, -0.0F}, {4});
  OpContext context = ctx();
  ops::silu(context, x, x);
  const auto out = download(x);
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_EQ(out[1], inf);
  EXPECT_EQ(out[2], 0.0F);
  EXPECT_EQ(out[3], 0.0F);
}

TEST_P(Activation, SiluMulReadsTheTwoHalvesOfOneBuffer) {
  for (const auto& [rows, ffn] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {5, 33}, {130, 640}, {3, 5001}}) {
    const auto gate = random_normal(rows * ffn, 2);
    const auto value = random_normal(rows * ffn, 3);
    std::vector<float> both;
    for (std::int64_t r = 0; r < rows; ++r) {
      both.insert(both.end(), gate.begin() + r * ffn, gate.begin() + (r + 1) * ffn);
      both.insert(both.end(), value.begin() + r * ffn, value.begin() + (r + 1) * ffn);
    }
    const auto out = run_identically([&, rows = rows, ffn = ffn](OpContext& ctx) {
      TensorView result = empty({rows, ffn});
      TensorView fc1 = upload(both, {rows, 2 * ffn});
      ops::silu_mul(ctx, result, fc1.narrow(1, 0, ffn), fc1.narrow(1, ffn, ffn));
      return result;
    });
    expect_close(out, reference::silu_mul(gate, value), tolerance("silu_mul"));
  }
}

TEST_P(Activation, SiluMulMayWriteOverItsGate) {
  constexpr std::int64_t kRows = 5;
  constexpr std::int64_t kFfn = 33;
  const auto both = random_normal(kRows * 2 * kFfn, 4);
  OpContext context = ctx();
  const TensorView fc1 = upload(both, {kRows, 2 * kFfn});
  const TensorView value = fc1.narrow(1, kFfn, kFfn);
  const TensorView apart = empty({kRows, kFfn});
  ops::silu_mul(context, apart, fc1.narrow(1, 0, kFfn), value);
  const auto values = download(value);
  ops::silu_mul(context, fc1.narrow(1, 0, kFfn), fc1.narrow(1, 0, kFfn), value);
  EXPECT_TRUE(identical_to(download(fc1.narrow(1, 0, kFfn)), download(apart)));
  EXPECT_TRUE(identical_to(download(value), values)) << "the value half is left alone";
}

// Spec vae.md example 11.7.
TEST_P(Activation, SiluMulWorkedExample) {
  TensorView out = empty({1, 2});
  OpContext context = ctx();
  ops::silu_mul(context, out, upload({1.5F, -0.8F}, {1, 2}), upload({-0.8F, 1.5F}, {1, 2}));
  EXPECT_NEAR(download(out)[0], -0.9810894, 2e-7);
  EXPECT_NEAR(download(out)[1], -0.3720306, 2e-7);
}

}  // namespace
}  // namespace miniacc::testing
