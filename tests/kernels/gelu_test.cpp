#include "kernels/gelu.h"

#include <cmath>
#include <limits>

#include "kernels/backend_test.h"
#include "reference/reference.h"
#include "support/random.h"

namespace miniacc::testing {
namespace {

class Gelu : public BackendTest {};
MINIACC_BACKEND_SUITE(Gelu);

TEST_P(Gelu, MatchesReference) {
  for (const std::int64_t size : {1, 7, 16, 17, 8191, 8193, 40001}) {
    std::vector<float> x = random_normal(size, 1);
    for (float& value : x) {
      value *= 3.0F;
    }
    x[0] = -2.5F;
    for (const ops::GeluForm form : {ops::GeluForm::kExact, ops::GeluForm::kTanh}) {
      const auto out = run_identically([&](OpContext& ctx) {
        TensorView result = empty({size});
        ops::gelu(ctx, result, upload(x, {size}), form);
        return result;
      });
      const bool exact = form == ops::GeluForm::kExact;
      expect_close(out, exact ? reference::gelu_exact(x) : reference::gelu_tanh(x),
                   tolerance("gelu", exact ? "exact" : "tanh"));
    }
  }
}

// gelu(1) = Φ(1) = 0.841344746; the tanh form differs in the fourth digit, so neither can stand in
// for the other.
TEST_P(Gelu, FormsAreTheTwoOfThePaper) {
  OpContext context = ctx();
  TensorView out = empty({3});
  ops::gelu(context, out, upload({1.0F, -1.0F, 2.0F}, {3}), ops::GeluForm::kExact);
  EXPECT_NEAR(download(out)[0], 0.841344746F, 1e-7F);
  EXPECT_NEAR(download(out)[1], -0.158655254F, 1e-7F);
  EXPECT_NEAR(download(out)[2], 1.95449974F, 2e-7F);
  ops::gelu(context, out, upload({1.0F, -1.0F, 2.0F}, {3}), ops::GeluForm::kTanh);
  EXPECT_NEAR(download(out)[0], 0.841191990F, 1e-7F);
  EXPECT_NEAR(download(out)[1], -0.158808010F, 1e-7F);
  EXPECT_NEAR(download(out)[2], 1.95459769F, 2e-7F);
}

TEST_P(Gelu, MayRunInPlaceAndSaturates) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const ops::GeluForm form : {ops::GeluForm::kExact, ops::GeluForm::kTanh}) {
    TensorView x = upload({std::nanf(""), inf, 0.0F, 1e30F, -60.0F}, {5});
    OpContext context = ctx();
    ops::gelu(context, x, x, form);
    const auto out = download(x);
    EXPECT_TRUE(std::isnan(out[0]));
    EXPECT_EQ(out[1], inf);
    EXPECT_EQ(out[2], 0.0F);
    EXPECT_EQ(out[3], 1e30F);
    EXPECT_EQ(out[4], 0.0F);
  }
}

}  // namespace
}  // namespace miniacc::testing
