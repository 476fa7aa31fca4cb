#include "kernels/norm.h"

#include <cmath>
#include <limits>

#include "kernels/backend_test.h"
#include "reference/reference.h"
#include "support/random.h"

namespace miniacc::testing {
namespace {

class Norm : public BackendTest {};
MINIACC_BACKEND_SUITE(Norm);

constexpr double kEps = 1e-5;
constexpr std::pair<std::int64_t, std::int64_t> kShapes[] = {
    {1, 1}, {1, 4096}, {3, 7}, {64, 15}, {65, 17}, {11, 512}, {11, 513}, {257, 2048}};

/// Normal values with rows that stress the statistics: zeros, outliers, denormals, a huge offset.
std::vector<float> adversarial(std::int64_t rows, std::int64_t hidden, std::uint64_t seed) {
  auto x = random_normal(rows * hidden, seed);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < hidden; ++i) {
      float& value = x[static_cast<std::size_t>(r * hidden + i)];
      switch (r % 5) {
        case 1:
          value = 0.0F;
          break;
        case 2:
          value *= i % 7 == 0 ? 1e4F : 1.0F;
          break;
        case 3:
          value *= 1e-39F;
          break;
        case 4:
          value += 1e3F;
          break;
        default:
          break;
      }
    }
  }
  return x;
}

TEST_P(Norm, RmsNormMatchesReference) {
  for (const auto& [rows, hidden] : kShapes) {
    const auto x = adversarial(rows, hidden, 1);
    const auto weight = random_normal(hidden, 2);
    for (const bool weighted : {true, false}) {
      const auto out = run_identically([&, rows = rows, hidden = hidden](OpContext& ctx) {
        TensorView result = empty({rows, hidden});
        ops::rms_norm(ctx, result, upload(x, {rows, hidden}),
                      weighted ? upload(weight, {hidden}) : TensorView{}, 1e-5F);
        return result;
      });
      expect_close(out,
                   reference::rms_norm(x, weighted ? weight : std::vector<float>{}, hidden,
                                       static_cast<double>(1e-5F)),
                   tolerance("rms_norm"));
    }
  }
}

// q of a fused projection, in place, one weight for all heads.
TEST_P(Norm, RmsNormPerHeadInPlaceOnAStridedView) {
  constexpr std::int64_t kRows = 33;
  constexpr std::int64_t kHeads = 3;
  constexpr std::int64_t kDim = 20;
  const auto all = random_normal(kRows * 2 * kHeads * kDim, 1);
  const auto weight = random_normal(kDim, 2);
  std::vector<float> right;
  for (std::int64_t r = 0; r < kRows; ++r) {
    const auto first = all.begin() + (2 * r + 1) * kHeads * kDim;
    right.insert(right.end(), first, first + kHeads * kDim);
  }
  TensorView buffer = upload(all, {kRows, 2 * kHeads, kDim});
  TensorView part = buffer.narrow(1, kHeads, kHeads);
  OpContext context = ctx();
  ops::rms_norm(context, part, part, upload(weight, {kDim}), 1e-5F);
  expect_close(download(part), reference::rms_norm(right, weight, kDim, kEps),
               tolerance("rms_norm"));
  const auto after = download(buffer);
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t i = 0; i < kHeads * kDim; ++i) {
      const auto at = static_cast<std::size_t>(2 * r * kHeads * kDim + i);
      ASSERT_EQ(after[at], all[at]);
    }
  }
}

TEST_P(Norm, ModulatedRmsNormMatchesReferenceWithStridedTables) {
  for (const auto& [rows, hidden] : kShapes) {
    const auto x = adversarial(rows, hidden, 1);
    const auto weight = random_normal(hidden, 2);
    const auto table = random_normal(3 * 2 * hidden, 3);  // rows of [shift | scale]
    std::vector<float> shift;
    std::vector<float> scale;
    for (std::int64_t r = 0; r < 3; ++r) {
      const auto first = table.begin() + r * 2 * hidden;
      shift.insert(shift.end(), first, first + hidden);
      scale.insert(scale.end(), first + hidden, first + 2 * hidden);
    }
    std::vector<std::int32_t> index;
    for (std::int64_t r = 0; r < rows; ++r) {
      index.push_back(static_cast<std::int32_t>((r * 7 + 2) % 3));
    }
    const auto out = run_identically([&, rows = rows, hidden = hidden](OpContext& ctx) {
      TensorView result = upload(x, {rows, hidden});
      TensorView tables = upload(table, {3, 2 * hidden});
      ops::modulated_rms_norm(ctx, result, result, upload(weight, {hidden}),
                              tables.narrow(1, 0, hidden), tables.narrow(1, hidden, hidden),
                              upload_i32(index), 1e-5F);
      return result;
    });
    expect_close(out, reference::modulated_rms_norm(x, weight, shift, scale, index, hidden, kEps),
                 tolerance("modulated_rms_norm"));
  }
}

TEST_P(Norm, ModulatedRmsNormRefusesAnIndexOutsideTheTable) {
  const TensorView one = upload({1, 2}, {1, 2});
  for (const std::int32_t row : {-1, 1}) {
    expect_stray_index_refused([&](OpContext& context) {
      TensorView out = upload({1, 2}, {1, 2});
      ops::modulated_rms_norm(context, out, one, upload({1, 1}, {2}), one, one, upload_i32({row}),
                              1e-5F);
      return out;
    });
  }
}

TEST_P(Norm, LayerNormMatchesReference) {
  for (const auto& [rows, hidden] : kShapes) {
    const auto x = adversarial(rows, hidden, 1);
    const auto weight = random_normal(hidden, 2);
    const auto bias = random_normal(hidden, 3);
    const auto out = run_identically([&, rows = rows, hidden = hidden](OpContext& ctx) {
      TensorView result = empty({rows, hidden});
      ops::layer_norm(ctx, result, upload(x, {rows, hidden}), upload(weight, {hidden}),
                      upload(bias, {hidden}), 1e-5F);
      return result;
    });
    expect_close(out, reference::layer_norm(x, weight, bias, hidden, kEps),
                 tolerance("layer_norm"));
  }
}

// Spec vae.md example 11.6.
TEST_P(Norm, WorkedExamples) {
  const std::vector<float> x = {1, -2, 3, 4};
  const std::vector<float> ones = {1, 1, 1, 1};
  const std::vector<float> zeros = {0, 0, 0, 0};
  TensorView out = empty({1, 4});
  OpContext context = ctx();
  ops::rms_norm(context, out, upload(x, {1, 4}), upload(ones, {4}), 1e-5F);
  const double rms[] = {0.3651481, -0.7302963, 1.0954444, 1.4605925};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(download(out)[i], rms[i], 2e-7);
  }
  ops::layer_norm(context, out, upload(x, {1, 4}), upload(ones, {4}), upload(zeros, {4}), 1e-5F);
  const double layer[] = {-0.2182177, -1.5275238, 0.6546530, 1.0910884};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(download(out)[i], layer[i], 2e-7);
  }
}

TEST_P(Norm, NanStaysInItsRow) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {1, nan, 3, 1, 2, 3};
  const std::vector<float> ones = {1, 1, 1};
  TensorView out = empty({2, 3});
  OpContext context = ctx();
  for (const bool layer : {false, true}) {
    if (layer) {
      ops::layer_norm(context, out, upload(x, {2, 3}), upload(ones, {3}), upload(ones, {3}), 1e-5F);
    } else {
      ops::rms_norm(context, out, upload(x, {2, 3}), upload(ones, {3}), 1e-5F);
    }
    const auto values = download(out);
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(std::isnan(values[i]), i < 3) << i;
    }
  }
}

}  // namespace
}  // namespace miniacc::testing
