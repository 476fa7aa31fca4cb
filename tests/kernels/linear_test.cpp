#include "kernels/linear.h"

#include <cmath>
#include <limits>

#include "device/cpu_device.h"
#include "kernels/backend_test.h"
#include "kernels/cpu/ops.h"
#include "reference/reference.h"
#include "support/compare.h"
#include "support/random.h"

namespace miniacc::testing {
namespace {

struct GemmCase {
  std::int64_t rows, n, k;
  bool bias = true;
};

constexpr GemmCase kCases[] = {
    {1, 1, 1},    {1, 5, 3, false}, {7, 1, 33},          {1, 517, 128},    {63, 65, 31},
    {64, 64, 64}, {65, 63, 257},    {51, 96, 32, false}, {130, 300, 1030}, {257, 48, 192}};

class Linear : public BackendTest {
 protected:
  /// x with outliers of 1e4 in some columns, a zero row and a row of denormals.
  static std::vector<float> adversarial(std::int64_t rows, std::int64_t k) {
    auto x = random_normal(rows * k, 11);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < k; ++i) {
        float& value = x[static_cast<std::size_t>(r * k + i)];
        if (rows > 3 && r % 4 == 1) {
          value = 0.0F;
        } else if (rows > 3 && r % 4 == 2) {
          value *= 1e-39F;
        } else if (i % 97 == 5) {
          value *= 1e4F;
        }
      }
    }
    return x;
  }

  std::vector<float> run(const std::vector<float>& x, const WeightMatrix& w,
                         const std::vector<float>& bias, const GemmCase& c) {
    return run_identically([&](OpContext& ctx) {
      TensorView out = empty({c.rows, c.n});
      ops::linear(ctx, out, upload(x, {c.rows, c.k}), w,
                  bias.empty() ? TensorView{} : upload(bias, {c.n}));
      return out;
    });
  }

  /// Weights quantised by the op under test, as the loader makes them.
  WeightMatrix quantized(const std::vector<float>& w, std::int64_t n, std::int64_t k,
                         std::int64_t group) {
    OpContext context = ctx();
    TensorView values = upload(w, {n, k});
    if (group != 0) {
      ops::rotate_rows(context, values, group);
    }
    TensorView packed = empty({n, k}, DType::kI8);
    TensorView scale = empty({n});
    ops::quantize_rows(context, packed, scale, values);
    return {.values = packed, .row_scale = scale, .rotation_group = group};
  }
};
MINIACC_BACKEND_SUITE(Linear);

TEST_P(Linear, F32MatchesReference) {
  for (const GemmCase& c : kCases) {
    const auto w = random_normal(c.n * c.k, 2);
    const auto bias = c.bias ? random_normal(c.n, 3) : std::vector<float>{};
    const auto x = adversarial(c.rows, c.k);
    const auto out = run(x, {.values = upload(w, {c.n, c.k})}, bias, c);
    expect_close(out, reference::linear(x, w, bias, c.rows, c.n, c.k), tolerance("linear", "f32"));
  }
}

TEST_P(Linear, Bf16MatchesReferenceOnRoundedOperands) {
  for (const GemmCase& c : kCases) {
    const auto w = random_normal(c.n * c.k, 2);
    const auto bias = c.bias ? random_normal(c.n, 3) : std::vector<float>{};
    const auto x = adversarial(c.rows, c.k);
    const auto out = run(x, {.values = upload_bf16(w, {c.n, c.k})}, bias, c);
    // oneDNN flushes denormals in bf16 products: rows of 1e-39 lose nothing that f32 output holds.
    expect_close(
        out,
        reference::linear(reference::to_bf16(x), reference::to_bf16(w), bias, c.rows, c.n, c.k),
        tolerance("linear", "bf16"));
    expect_close(out, reference::linear(x, w, bias, c.rows, c.n, c.k),
                 tolerance("linear", "bf16_rounding"));
  }
}

TEST_P(Linear, Int8IsExactOnOperandsThatInt8Holds) {
  for (const GemmCase& c : kCases) {
    std::vector<float> x;
    std::vector<float> w;
    for (std::int64_t i = 0; i < c.rows * c.k; ++i) {  // every row has a 127: scale 1
      x.push_back(i % c.k == 0 ? 127.0F : static_cast<float>((i * 37) % 255 - 127));
    }
    std::vector<std::int8_t> packed;
    std::vector<float> scale;
    for (std::int64_t i = 0; i < c.n * c.k; ++i) {
      const auto row = static_cast<float>(i / c.k + 1);
      packed.push_back(static_cast<std::int8_t>((i * 91) % 255 - 127));
      w.push_back(static_cast<float>(packed.back()) * row * 0.25F);
    }
    for (std::int64_t r = 0; r < c.n; ++r) {
      scale.push_back(static_cast<float>(r + 1) * 0.25F);
    }
    const auto bias = c.bias ? random_normal(c.n, 3) : std::vector<float>{};
    const auto out = run(
        x, {.values = upload_i8(packed, {c.n, c.k}), .row_scale = upload(scale, {c.n})}, bias, c);
    expect_close(out, reference::linear(x, w, bias, c.rows, c.n, c.k), tolerance("linear", "i8"));
  }
}

TEST_P(Linear, Int8RoundingStaysSmallOnNormalData) {
  for (const GemmCase& c : kCases) {
    if (c.k < 31) {
      continue;  // a statement about sums of many roundings
    }
    const auto x = random_normal(c.rows * c.k, 1);
    const auto w = random_normal(c.n * c.k, 2);
    const auto out = run(x, quantized(w, c.n, c.k, 0), {}, c);
    expect_close(out, reference::linear(x, w, {}, c.rows, c.n, c.k),
                 tolerance("linear", "i8_rounding"));
  }
}

// What the rotation is for: an outlier of 30 in every row leaves its neighbours few levels, unless
// it is spread over a group first.
TEST_P(Linear, RotationKeepsInt8AccurateUnderOutliers) {
  const GemmCase c{33, 70, 512};
  auto x = random_normal(c.rows * c.k, 1);
  for (std::size_t i = 5; i < x.size(); i += 512) {
    x[i] = 30.0F;
  }
  const auto w = random_normal(c.n * c.k, 2);
  const auto expected = reference::linear(x, w, {}, c.rows, c.n, c.k);
  const double plain = relative_error(run(x, quantized(w, c.n, c.k, 0), {}, c), expected);
  for (const std::int64_t group : {4, 16, 256}) {
    const auto out = run(x, quantized(w, c.n, c.k, group), {}, c);
    EXPECT_LT(relative_error(out, expected), plain) << group;
    if (group == 256) {
      expect_close(out, expected, tolerance("linear", "i8_rotated"));
      EXPECT_LT(relative_error(out, expected), 0.5 * plain);
    }
  }
}

TEST_P(Linear, StridedRowsOfInputAndOutput) {
  constexpr std::int64_t kRows = 37;
  constexpr std::int64_t kIn = 24;
  constexpr std::int64_t kOut = 40;
  const auto wide = random_normal(kRows * 3 * kIn, 1);
  const auto w = random_normal(kOut * kIn, 2);
  std::vector<float> x;
  for (std::int64_t r = 0; r < kRows; ++r) {
    x.insert(x.end(), wide.begin() + (3 * r + 1) * kIn, wide.begin() + (3 * r + 2) * kIn);
  }
  const auto expected = reference::linear(x, w, {}, kRows, kOut, kIn);
  const WeightMatrix matrices[] = {{.values = upload(w, {kOut, kIn})},
                                   {.values = upload_bf16(w, {kOut, kIn})},
                                   quantized(w, kOut, kIn, 4)};
  const char* rows[] = {"f32", "bf16_rounding", "i8_rounding"};
  for (int i = 0; i < 3; ++i) {
    TensorView buffer = empty({kRows, 2 * kOut});
    TensorView out = buffer.narrow(1, kOut, kOut);
    OpContext context = ctx();
    ops::linear(context, out, upload(wide, {kRows, 3 * kIn}).narrow(1, kIn, kIn), matrices[i]);
    expect_close(download(out), expected, tolerance("linear", rows[i]));
    for (const float value : download(buffer.narrow(1, 0, kOut))) {
      ASSERT_TRUE(std::isnan(value)) << "wrote outside its columns";
    }
  }
}

TEST_P(Linear, ProductionShapeAgreesOnSampledOutputs) {
  const GemmCase c{1797, 96, 2048};
  const auto x = random_normal(c.rows * c.k, 1);
  const auto w = random_normal(c.n * c.k, 2);
  const auto out = run(x, {.values = upload(w, {c.n, c.k})}, {}, c);
  for (std::int64_t r : {0, 1, 63, 64, 1000, 1796}) {
    const std::vector<float> row(x.begin() + r * c.k, x.begin() + (r + 1) * c.k);
    expect_close(std::span(out).subspan(static_cast<std::size_t>(r * c.n), 96),
                 reference::linear(row, w, {}, 1, c.n, c.k), tolerance("linear", "f32"));
  }
}

TEST_P(Linear, NoRowsIsFine) {
  OpContext context = ctx();
  EXPECT_NO_THROW(ops::linear(context, empty({0, 3}), empty({0, 2}),
                              {.values = upload({1, 2, 3, 4, 5, 6}, {3, 2})}));
}

TEST_P(Linear, NanAndInfinityStayInTheirRow) {
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::infinity()};
  const std::vector<float> w(4 * 16, 1.0F);
  const WeightMatrix matrices[] = {{.values = upload(w, {4, 16})},
                                   {.values = upload_bf16(w, {4, 16})},
                                   quantized(w, 4, 16, 0),
                                   quantized(w, 4, 16, 4)};
  for (const float value : bad) {
    for (const WeightMatrix& matrix : matrices) {
      std::vector<float> x(3 * 16, 1.0F);
      x[20] = value;
      const auto out = [&] {
        TensorView result = empty({3, 4});
        OpContext context = ctx();
        ops::linear(context, result, upload(x, {3, 16}), matrix);
        return download(result);
      }();
      for (std::size_t i = 0; i < out.size(); ++i) {
        EXPECT_EQ(std::isfinite(out[i]), i / 4 != 1) << i;
      }
    }
  }
}

// The path for CPUs whose i8 products oneDNN would saturate; this machine may not be one.
TEST(LinearCpu, PortableInt8ProductIsExactAtTheExtremes) {
  CpuDevice device;
  OpContext ctx{.device = device, .num_threads = 2};
  constexpr std::int64_t kSize = 16391;
  Tensor x = empty_tensor(device, {3, kSize}, DType::kI8);
  Tensor w = empty_tensor(device, {5, kSize}, DType::kI8);
  Tensor out = empty_tensor(device, {3, 5}, DType::kI32);
  auto* source = x.view().as<std::int8_t>();
  auto* matrix = w.view().as<std::int8_t>();
  for (std::int64_t i = 0; i < 3 * kSize; ++i) {
    source[i] = static_cast<std::int8_t>(i < kSize ? 127 : (i * 31) % 255 - 127);
  }
  for (std::int64_t i = 0; i < 5 * kSize; ++i) {
    matrix[i] = static_cast<std::int8_t>(i < kSize ? -127 : (i * 17) % 255 - 127);
  }
  ops::cpu::matmul_int8_portable(ctx, out.view(), x.view(), w.view());
  for (std::int64_t r = 0; r < 3; ++r) {
    for (std::int64_t c = 0; c < 5; ++c) {
      std::int64_t sum = 0;
      for (std::int64_t i = 0; i < kSize; ++i) {
        sum += std::int64_t{source[r * kSize + i]} * matrix[c * kSize + i];
      }
      ASSERT_EQ(out.view().as<std::int32_t>()[r * 5 + c], sum);
    }
  }
}

}  // namespace
}  // namespace miniacc::testing
