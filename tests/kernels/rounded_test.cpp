#include "kernels/rounded.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "core/float_convert.h"
#include "kernels/activation.h"
#include "kernels/backend_test.h"
#include "kernels/linear.h"
#include "kernels/norm.h"
#include "support/compare.h"
#include "support/random.h"

namespace miniacc::testing {
namespace {

class Rounded : public BackendTest {
 protected:
  /// The values of a contiguous bf16 matrix.
  [[nodiscard]] std::vector<float> download_bf16(const TensorView& view) const {
    const std::vector<std::int8_t> bytes = download_i8(
        ConstTensorView(view.data, {view.dim(0), 2 * view.dim(1)}, DType::kI8, view.device));
    std::vector<float> values(bytes.size() / 2);
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, bytes.data() + 2 * i, sizeof(bits));
      values[i] = bf16_to_float(bits);
    }
    return values;
  }
  static std::vector<float> rounded(std::vector<float> values) {
    for (float& value : values) {
      value = round_to_bf16(value);
    }
    return values;
  }
  /// Equal, or (CUDA) one step of bf16 apart where the chain's value lies at the middle of two.
  void expect_same(const std::vector<float>& fused, const std::vector<float>& chain) {
    ASSERT_EQ(fused.size(), chain.size());
    if (GetParam().kind == DeviceKind::kCpu) {
      EXPECT_TRUE(identical_to(fused, chain));
      return;
    }
    std::size_t moved = 0;
    for (std::size_t i = 0; i < chain.size(); ++i) {
      ASSERT_NEAR(fused[i], chain[i], std::abs(chain[i]) / 128.0F) << i;
      moved += fused[i] != chain[i] ? 1 : 0;
    }
    EXPECT_LE(moved, 1 + chain.size() / 1000) << "of " << chain.size();
  }
};
MINIACC_BACKEND_SUITE(Rounded);

TEST_P(Rounded, NormIsTheRoundedNorm) {
  for (const auto& [rows, k] :
       {std::pair<std::int64_t, std::int64_t>{1, 2}, {3, 34}, {5, 512}, {2, 514}, {3, 2048}}) {
    auto values = random_normal(rows * k, 3);
    values[1] = 300.0F;  // an outlier
    const TensorView x = upload(values, {rows, k});
    const TensorView weight = upload(random_normal(k, 4), {k});
    const TensorView chain = empty({rows, k});
    const TensorView out = empty({rows, k}, DType::kBF16);
    OpContext context = ctx();
    ops::rms_norm(context, chain, x, weight, 1e-5F);
    ops::rms_norm_rounded(context, out, x, weight, 1e-5F);
    expect_same(download_bf16(out), rounded(download(chain)));
  }
}

TEST_P(Rounded, SiluMulIsTheRoundedProduct) {
  for (const auto& [rows, k] :
       {std::pair<std::int64_t, std::int64_t>{1, 2}, {3, 34}, {2, 1026}, {3, 8192}}) {
    const TensorView both = upload(random_normal(rows * 2 * k, 5), {rows, 2 * k});
    const TensorView gate = both.narrow(1, 0, k);
    const TensorView value = both.narrow(1, k, k);
    const TensorView chain = empty({rows, k});
    const TensorView out = empty({rows, k}, DType::kBF16);
    OpContext context = ctx();
    ops::silu_mul(context, chain, gate, value);
    ops::silu_mul_rounded(context, out, gate, value);
    expect_same(download_bf16(out), rounded(download(chain)));
  }
}

TEST_P(Rounded, NotANumberStaysOne) {
  std::vector<float> values = {1.0F, std::numeric_limits<float>::infinity(), 2.0F, 3.0F};
  const TensorView x = upload(values, {2, 2});
  const TensorView weight = upload({1.0F, 1.0F}, {2});
  const TensorView out = empty({2, 2}, DType::kBF16);
  OpContext context = ctx();
  ops::rms_norm_rounded(context, out, x, weight, 1e-5F);
  const std::vector<float> result = download_bf16(out);
  EXPECT_FALSE(std::isfinite(result[1]));
  EXPECT_TRUE(std::isfinite(result[2]) && std::isfinite(result[3]));
}

TEST_P(Rounded, LinearEqualsLinearOfTheSameValues) {
  constexpr std::int64_t kRows = 5;
  constexpr std::int64_t kDepth = 34;
  constexpr std::int64_t kColumns = 7;
  const auto values = rounded(random_normal(kRows * kDepth, 6));
  const TensorView x = upload(values, {kRows, kDepth});
  const TensorView x16 = upload_bf16(values, {kRows, kDepth});
  const WeightMatrix w{.values =
                           upload_bf16(random_normal(kColumns * kDepth, 7), {kColumns, kDepth})};
  const TensorView bias = upload(random_normal(kColumns, 8), {kColumns});
  const TensorView wanted = empty({kRows, kColumns});
  const TensorView wide = empty({kRows, kColumns + 3});
  OpContext context = ctx();
  ops::linear(context, wanted, x, w, bias);
  ops::linear_rounded(context, wide.narrow(1, 0, kColumns), x16, w, bias);
  EXPECT_TRUE(identical_to(download(wide.narrow(1, 0, kColumns)), download(wanted)));
  EXPECT_TRUE(std::isnan(download(wide)[kColumns])) << "what lies beside stays";
}

TEST_P(Rounded, ASplitProductKeepsTheDigitsOfF32) {
  constexpr std::int64_t kRows = 9;
  constexpr std::int64_t kDepth = 256;
  constexpr std::int64_t kColumns = 12;
  const auto x = random_normal(kRows * kDepth, 9);
  const auto w = random_normal(kColumns * kDepth, 10);
  std::vector<double> wanted;
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t column = 0; column < kColumns; ++column) {
      double sum = 0.0;
      for (std::int64_t i = 0; i < kDepth; ++i) {
        sum += static_cast<double>(x[static_cast<std::size_t>(row * kDepth + i)]) *
               static_cast<double>(w[static_cast<std::size_t>(column * kDepth + i)]);
      }
      wanted.push_back(sum);
    }
  }
  const TensorView x3 = empty({kRows, 3 * kDepth}, DType::kBF16);
  const TensorView w3 = empty({kColumns, 3 * kDepth}, DType::kBF16);
  const TensorView out = empty({kRows, kColumns});
  OpContext context = ctx();
  ops::split_rows(context, x3, upload(x, {kRows, kDepth}), ops::SplitSide::kActivation);
  ops::split_rows(context, w3, upload(w, {kColumns, kDepth}), ops::SplitSide::kMatrix);
  ops::linear_rounded(context, out, x3, {.values = w3});
  // Measured: 4e-6 (2.7e-3 for operands rounded to bf16).
  EXPECT_TRUE(close_to(download(out), std::span<const double>(wanted), 2e-5));
}

TEST_P(Rounded, BrokenContractsAreRefused) {
  OpContext context = ctx();
  const TensorView x = upload(random_normal(6, 1), {2, 3});
  const TensorView weight = upload(random_normal(3, 2), {3});
  EXPECT_THROW(ops::rms_norm_rounded(context, empty({2, 3}, DType::kBF16), x, weight, 1e-5F),
               InternalError)
      << "an odd number of columns";
  const TensorView even = upload(random_normal(8, 1), {2, 4});
  EXPECT_THROW(ops::rms_norm_rounded(context, empty({2, 4}), even, weight, 1e-5F), InternalError);
  EXPECT_THROW(
      ops::silu_mul_rounded(context, empty({2, 4}, DType::kBF16), even, even.narrow(1, 0, 2)),
      InternalError);
  EXPECT_THROW(
      ops::split_rows(context, empty({2, 8}, DType::kBF16), even, ops::SplitSide::kActivation),
      InternalError);
  const WeightMatrix w{.values = even};
  EXPECT_THROW(ops::linear_rounded(context, empty({2, 2}), empty({2, 4}, DType::kBF16), w),
               InternalError)
      << "an f32 matrix";
}

}  // namespace
}  // namespace miniacc::testing
