#include "kernels/low_rank.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/float_convert.h"
#include "device/cpu_device.h"
#include "kernels/backend_test.h"
#include "kernels/copy.h"
#include "kernels/linear.h"
#include "reference/reference.h"
#include "support/compare.h"
#include "support/random.h"

namespace miniacc::testing {
namespace {

struct LowRankCase {
  std::int64_t rows, n, k, rank, first_row, num_rows;
};
// The CPU's chunk of 512 rows and its neighbours; rank and widths of a released qkv part at 3 rows.
constexpr LowRankCase kCases[] = {{1, 1, 1, 1, 0, 1},
                                  {7, 12, 5, 3, 4, 8},
                                  {33, 64, 48, 16, 0, 64},
                                  {511, 20, 9, 2, 10, 10},
                                  {512, 20, 9, 2, 0, 7},
                                  {513, 21, 33, 4, 3, 11},
                                  {3, 21504, 5376, 128, 7168, 7168}};
constexpr float kScale = 0.37F;

class LowRank : public BackendTest {
 protected:
  LowRankDelta delta(const std::vector<float>& down, const std::vector<float>& up,
                     const LowRankCase& c, DType dtype = DType::kF32) {
    LowRankDelta result{tensor(down, {c.rank, c.k}, dtype), tensor(up, {c.num_rows, c.rank}, dtype),
                        kScale, c.first_row};
    return result;
  }
  Tensor tensor(const std::vector<float>& values, const Shape& shape, DType dtype) {
    CpuDevice host;
    Tensor result = empty_tensor(host, shape, dtype);
    if (dtype == DType::kF32) {
      std::ranges::copy(values, result.f32().begin());
    } else {
      std::ranges::transform(values, result.view().as<std::uint16_t>(), float_to_bf16);
    }
    if (GetParam().kind == DeviceKind::kCpu) {
      Tensor own = empty_tensor(device(), shape, dtype);
      std::memcpy(own.view().data, result.view().data, result.size_bytes());
      return own;
    }
    OpContext context = ctx();
    return to_device(context, std::move(result));
  }
  /// before + scale · (x · downᵀ) · upᵀ in the delta's columns, in double.
  static std::vector<double> defined(const std::vector<float>& before, const std::vector<float>& x,
                                     const std::vector<float>& down, const std::vector<float>& up,
                                     const LowRankCase& c) {
    std::vector<double> out(before.begin(), before.end());
    const auto at = [](const std::vector<float>& values, std::int64_t index) {
      return static_cast<double>(values[static_cast<std::size_t>(index)]);
    };
    for (std::int64_t row = 0; row < c.rows; ++row) {
      for (std::int64_t r = 0; r < c.rank; ++r) {
        double inner = 0.0;
        for (std::int64_t i = 0; i < c.k; ++i) {
          inner += at(x, row * c.k + i) * at(down, r * c.k + i);
        }
        for (std::int64_t o = 0; o < c.num_rows; ++o) {
          out[static_cast<std::size_t>(row * c.n + c.first_row + o)] +=
              static_cast<double>(kScale) * inner * at(up, o * c.rank + r);
        }
      }
    }
    return out;
  }
};
MINIACC_BACKEND_SUITE(LowRank);

TEST_P(LowRank, F32MatchesTheDefinition) {
  for (const LowRankCase& c : kCases) {
    const auto x = random_normal(c.rows * c.k, 1);
    const auto down = random_normal(c.rank * c.k, 2);
    const auto up = random_normal(c.num_rows * c.rank, 3);
    const auto before = random_normal(c.rows * c.n, 4);
    const LowRankDelta change = delta(down, up, c);
    const auto out = run_identically([&](OpContext& ctx) {
      const TensorView result = upload(before, {c.rows, c.n});
      ops::add_low_rank(ctx, result, upload(x, {c.rows, c.k}), change);
      return result;
    });
    expect_close(out, defined(before, x, down, up, c), tolerance("add_low_rank", "f32"));
    for (std::int64_t i = 0; i < c.rows * c.n; ++i) {  // nothing beside the delta's columns
      const bool inside = i % c.n >= c.first_row && i % c.n < c.first_row + c.num_rows;
      if (!inside) {
        ASSERT_EQ(out[static_cast<std::size_t>(i)], before[static_cast<std::size_t>(i)]) << i;
      }
    }
  }
}

TEST_P(LowRank, Bf16FactorsStayWithinTheirRounding) {
  for (const LowRankCase& c : kCases) {
    const auto x = random_normal(c.rows * c.k, 1);
    const auto down = reference::to_bf16(random_normal(c.rank * c.k, 2));
    const auto up = reference::to_bf16(random_normal(c.num_rows * c.rank, 3));
    const std::vector<float> before(static_cast<std::size_t>(c.rows * c.n), 0.0F);
    const LowRankDelta change = delta(down, up, c, DType::kBF16);
    const auto out = run_identically([&](OpContext& ctx) {
      const TensorView result = upload(before, {c.rows, c.n});
      ops::add_low_rank(ctx, result, upload(x, {c.rows, c.k}), change);
      return result;
    });
    expect_close(out, defined(before, x, down, up, c), tolerance("add_low_rank", "bf16"));
  }
}

TEST_P(LowRank, LinearAddsEverySideProductOfItsMatrix) {
  const LowRankCase c = {5, 24, 16, 4, 8, 8};
  const auto x = random_normal(c.rows * c.k, 1);
  const auto w = random_normal(c.n * c.k, 9);
  const auto down = random_normal(c.rank * c.k, 2);
  const auto up = random_normal(c.num_rows * c.rank, 3);
  std::vector<LowRankDelta> changes;
  changes.push_back(delta(down, up, c));
  changes.push_back(delta(down, up, c));
  changes.back().first_row = 0;
  const auto out = run_identically([&](OpContext& ctx) {
    const TensorView result = empty({c.rows, c.n});
    ops::linear(ctx, result, upload(x, {c.rows, c.k}),
                {.values = upload(w, {c.n, c.k}), .low_rank = changes});
    return result;
  });
  const auto plain = reference::linear(x, w, {}, c.rows, c.n, c.k);
  const std::vector<float> base(plain.begin(), plain.end());
  LowRankCase second = c;
  second.first_row = 0;
  const auto one = defined(base, x, down, up, c);
  const std::vector<float> with_one(one.begin(), one.end());
  expect_close(out, defined(with_one, x, down, up, second), tolerance("add_low_rank", "f32"));
}

TEST_P(LowRank, RotatedInt8MatricesGiveTheSideProductTheActivationAsItIs) {
  const LowRankCase c = {4, 16, 64, 4, 0, 16};
  const auto x = random_normal(c.rows * c.k, 1);
  const auto down = random_normal(c.rank * c.k, 2);
  const auto up = random_normal(c.num_rows * c.rank, 3);
  std::vector<LowRankDelta> changes;
  changes.push_back(delta(down, up, c));
  OpContext context = ctx();
  const TensorView values = upload(random_normal(c.n * c.k, 5), {c.n, c.k});
  ops::rotate_rows(context, values, 16);
  const TensorView packed = empty({c.n, c.k}, DType::kI8);
  const TensorView scale = empty({c.n});
  ops::quantize_rows(context, packed, scale, values);
  WeightMatrix w{.values = packed, .row_scale = scale, .rotation_group = 16};
  const TensorView plain = empty({c.rows, c.n});
  ops::linear(context, plain, upload(x, {c.rows, c.k}), w);
  w.low_rank = changes;
  const TensorView with = empty({c.rows, c.n});
  ops::linear(context, with, upload(x, {c.rows, c.k}), w);
  expect_close(download(with), defined(download(plain), x, down, up, c),
               tolerance("add_low_rank", "f32"));
}

TEST_P(LowRank, RowsOfAWiderBufferAndNanPassThrough) {
  const LowRankCase c = {3, 6, 4, 2, 2, 3};
  auto x = random_normal(c.rows * 7, 1);
  x[7] = std::numeric_limits<float>::quiet_NaN();  // row 1
  const LowRankDelta change = delta(random_normal(c.rank * c.k, 2), random_normal(6, 3), c);
  OpContext context = ctx();
  const TensorView wide = upload(std::vector<float>(27, 1.0F), {3, 9});
  ops::add_low_rank(context, wide.narrow(1, 1, 6), upload(x, {3, 7}).narrow(1, 0, 4), change);
  const auto out = download(wide);
  for (std::int64_t i = 0; i < 27; ++i) {
    const bool inside = i % 9 >= 3 && i % 9 < 6;
    const float value = out[static_cast<std::size_t>(i)];
    EXPECT_EQ(std::isnan(value), inside && i / 9 == 1) << i;
    EXPECT_EQ(value == 1.0F, !inside) << i;
  }
}

}  // namespace
}  // namespace miniacc::testing
