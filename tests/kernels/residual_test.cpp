#include "kernels/residual.h"

#include <cmath>

#include "kernels/backend_test.h"
#include "reference/reference.h"
#include "support/random.h"

namespace miniacc::testing {
namespace {

class Residual : public BackendTest {};
MINIACC_BACKEND_SUITE(Residual);

TEST_P(Residual, AddIsTheExactFloatSum) {
  for (const std::int64_t size : {1, 15, 16384, 70001}) {
    const auto h = random_normal(size, 1);
    const auto x = random_normal(size, 2);
    const auto out = run_identically([&](OpContext& ctx) {
      TensorView sum = upload(h, {size});
      ops::add(ctx, sum, upload(x, {size}));
      return sum;
    });
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(out[i], h[i] + x[i]) << i;
    }
  }
}

TEST_P(Residual, AddOfNothingIsNothing) {
  OpContext context = ctx();
  EXPECT_NO_THROW(ops::add(context, empty({0, 4}), empty({0, 4})));
}

TEST_P(Residual, GatedAddPicksTheGateRowOfEachToken) {
  constexpr std::int64_t kHidden = 37;
  const std::vector<std::int32_t> index = {2, 0, 1, 1, 2};
  const auto h = random_normal(5 * kHidden, 1);
  const auto x = random_normal(5 * kHidden, 2);
  const auto gate = random_normal(3 * kHidden, 3);
  const auto out = run_identically([&](OpContext& ctx) {
    TensorView sum = upload(h, {5, kHidden});
    ops::gated_add(ctx, sum, upload(x, {5, kHidden}), upload(gate, {3, kHidden}),
                   upload_i32(index));
    return sum;
  });
  expect_close(out, reference::gated_add(h, x, gate, index, kHidden), tolerance("gated_add"));
}

TEST_P(Residual, GatedAddReadsStridedTablesAndDefaultsToRowZero) {
  constexpr std::int64_t kHidden = 2570;
  const auto h = random_normal(60 * kHidden, 1);
  const auto x = random_normal(60 * kHidden, 2);
  const auto table = random_normal(2 * 3 * kHidden, 3);
  const std::vector<float> gate(table.begin() + kHidden, table.begin() + 2 * kHidden);
  const auto out = run_identically([&](OpContext& ctx) {
    TensorView sum = upload(h, {60, kHidden});
    ops::gated_add(ctx, sum, upload(x, {60, kHidden}),
                   upload(table, {2, 3 * kHidden}).narrow(1, kHidden, kHidden), {});
    return sum;
  });
  expect_close(out, reference::gated_add(h, x, gate, {}, kHidden), tolerance("gated_add"));
}

TEST_P(Residual, RefusesAnIndexOutsideTheTable) {
  for (const std::int32_t row : {-1, 3, 1 << 30}) {
    expect_stray_index_refused([&](OpContext& context) {
      TensorView h = upload({1, 2}, {1, 2});
      ops::gated_add(context, h, upload({1, 2}, {1, 2}), upload({1, 2, 3, 4, 5, 6}, {3, 2}),
                     upload_i32({row}));
      return h;
    });
  }
}

}  // namespace
}  // namespace miniacc::testing
