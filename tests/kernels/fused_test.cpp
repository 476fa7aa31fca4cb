#include "kernels/fused.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include "kernels/activation.h"
#include "kernels/backend_test.h"
#include "kernels/linear.h"
#include "kernels/norm.h"
#include "reference/reference.h"
#include "support/compare.h"
#include "support/random.h"

namespace miniacc::testing {
namespace {

/// Each fused op against the chain of ops that it replaces, on the same backend.
class Fused : public BackendTest {
 protected:
  struct Codes {
    std::vector<std::int8_t> values;
    std::vector<float> scale;
  };
  struct Case {
    std::int64_t rows, k, group;
  };

  /// Runs a producer into memory of the backend.
  template <typename Produce>
  Codes codes_of(std::int64_t rows, std::int64_t k, const Produce& produce) {
    OpContext context = ctx();
    TensorView out = empty({rows, k}, DType::kI8);
    TensorView scale = empty({rows});
    produce(context, out, scale);
    return {download_i8(out), download(scale)};
  }

  /// The end of every chain: rotate x in place, then quantise it.
  Codes chain_end(const TensorView& x, std::int64_t group) {
    return codes_of(x.dim(0), x.dim(1), [&](OpContext& context, TensorView out, TensorView scale) {
      if (group != 0) {
        ops::rotate_rows(context, x, group);
      }
      ops::quantize_rows(context, out, scale, x);
    });
  }

  /// On the CPU every bit. On CUDA a scale may differ in its last bits and, where that moves a
  /// value across the middle between two codes, a code by one.
  void expect_same(const Codes& fused, const Codes& chain) {
    ASSERT_EQ(fused.values.size(), chain.values.size());
    if (GetParam().kind == DeviceKind::kCpu) {
      EXPECT_EQ(fused.values, chain.values);
      EXPECT_TRUE(identical_to(fused.scale, chain.scale));
      return;
    }
    std::size_t moved = 0;
    for (std::size_t i = 0; i < chain.values.size(); ++i) {
      const int difference = std::abs(int{fused.values[i]} - int{chain.values[i]});
      ASSERT_LE(difference, 1) << "code " << i;
      moved += difference != 0 ? 1 : 0;
    }
    EXPECT_LE(moved, chain.values.size() / 1000) << "of " << chain.values.size();
    for (std::size_t i = 0; i < chain.scale.size(); ++i) {
      if (std::isnan(chain.scale[i])) {
        EXPECT_TRUE(std::isnan(fused.scale[i])) << "row " << i;
      } else {
        EXPECT_NEAR(fused.scale[i], chain.scale[i], 1e-6F * chain.scale[i]) << "row " << i;
      }
    }
  }

  /// Normal values with a column of outliers, a row of zeros and one of denormals.
  static std::vector<float> rows_with_outliers(std::int64_t rows, std::int64_t k) {
    auto x = random_normal(rows * k, 5);
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t i = 0; i < k; ++i) {
        float& value = x[static_cast<std::size_t>(row * k + i)];
        if (i % 97 == 5) {
          value *= 1e3F;
        }
        if (row % 5 == 1) {
          value = 0.0F;
        } else if (row % 5 == 2) {
          value *= 1e-39F;
        }
      }
    }
    return x;
  }

  static constexpr Case kCases[] = {
      {1, 1, 0},      {3, 5, 0},       {5, 4, 4},    {2, 48, 16},  {7, 64, 64},   {5, 80, 16},
      {1, 255, 0},    {3, 256, 256},   {3, 256, 64}, {2, 257, 0},  {6, 512, 256}, {2, 5376, 256},
      {2, 7168, 256}, {1, 14336, 256}, {2, 8448, 4}, {1, 8191, 0},
  };
};
MINIACC_BACKEND_SUITE(Fused);

TEST_P(Fused, RotateQuantizeIsItsChain) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c.rows << "x" << c.k << " in groups of " << c.group);
    const auto x = rows_with_outliers(c.rows, c.k);
    const Codes fused =
        codes_of(c.rows, c.k, [&](OpContext& context, TensorView out, TensorView scale) {
          ops::rotate_quantize_rows(context, out, scale, upload(x, {c.rows, c.k}), c.group);
        });
    const Codes chain = chain_end(upload(x, {c.rows, c.k}), c.group);
    EXPECT_EQ(fused.values, chain.values) << "the same additions in the same order";
    EXPECT_TRUE(identical_to(fused.scale, chain.scale));
  }
}

TEST_P(Fused, RotateQuantizeReadsStridedRowsAndOddAddresses) {
  constexpr std::int64_t kRows = 5;
  constexpr std::int64_t kWide = 3 * 48 + 1;
  const auto wide = random_normal(kRows * kWide, 6);
  for (const std::int64_t first : {0, 1, 3, 4}) {
    std::vector<float> x;
    for (std::int64_t row = 0; row < kRows; ++row) {
      const auto start = wide.begin() + row * kWide + first;
      x.insert(x.end(), start, start + 48);
    }
    const Codes fused =
        codes_of(kRows, 48, [&](OpContext& context, TensorView out, TensorView scale) {
          ops::rotate_quantize_rows(context, out, scale,
                                    upload(wide, {kRows, kWide}).narrow(1, first, 48), 16);
        });
    const Codes chain = chain_end(upload(x, {kRows, 48}), 16);
    EXPECT_EQ(fused.values, chain.values);
    EXPECT_TRUE(identical_to(fused.scale, chain.scale));
  }
}

// Spec acceleration_full.md §12, examples 1 and 2.
TEST_P(Fused, WorkedExamplesOfTheSpec) {
  const Codes plain = codes_of(1, 8, [&](OpContext& context, TensorView out, TensorView scale) {
    ops::rotate_quantize_rows(
        context, out, scale,
        upload({1.984375F, -0.5F, 0.0078125F, 0.0234375F, -0.0234375F, 0.0390625F, -1, 0}, {1, 8}),
        0);
  });
  EXPECT_EQ(plain.scale[0], 1.0F / 64.0F);
  EXPECT_EQ(plain.values, (std::vector<std::int8_t>{127, -32, 0, 2, -2, 2, -64, 0}));
  const Codes rotated = codes_of(1, 4, [&](OpContext& context, TensorView out, TensorView scale) {
    ops::rotate_quantize_rows(context, out, scale, upload({3, -1, 4, 8}, {1, 4}), 4);
  });
  EXPECT_EQ(rotated.scale[0], 8.0F / 127.0F);  // (-1, 3, 8, 4)
  EXPECT_EQ(rotated.values, (std::vector<std::int8_t>{-16, 48, 127, 64}));
}

TEST_P(Fused, ModulatedNormQuantizeIsItsChain) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c.rows << "x" << c.k << " in groups of " << c.group);
    const auto x = rows_with_outliers(c.rows, c.k);
    const auto weight = random_normal(c.k, 7);
    const auto table = random_normal(3 * 2 * c.k, 8);  // shift and gain side by side
    std::vector<std::int32_t> index;
    for (std::int64_t row = 0; row < c.rows; ++row) {
      index.push_back(static_cast<std::int32_t>((row * 2) % 3));
    }
    const TensorView tables = upload(table, {3, 2 * c.k});
    const TensorView shift = tables.narrow(1, 0, c.k);
    const TensorView gain = tables.narrow(1, c.k, c.k);
    const TensorView weights = upload(weight, {c.k});
    const TensorView rows = upload_i32(index);
    const Codes fused =
        codes_of(c.rows, c.k, [&](OpContext& context, TensorView out, TensorView scale) {
          ops::modulated_rms_norm_quantize(context, out, scale, upload(x, {c.rows, c.k}), weights,
                                           shift, gain, rows, 1e-5F, c.group);
        });
    OpContext context = ctx();
    TensorView normed = empty({c.rows, c.k});
    ops::modulated_rms_norm(context, normed, upload(x, {c.rows, c.k}), weights, shift, gain, rows,
                            1e-5F);
    expect_same(fused, chain_end(normed, c.group));
  }
}

TEST_P(Fused, ModulatedNormQuantizeMakesAStrayRowVisible) {
  expect_stray_index_refused([&](OpContext& context) {
    TensorView out = empty({1, 16}, DType::kI8);
    TensorView scale = empty({1});
    const TensorView table = upload(random_normal(32, 1), {2, 16});
    ops::modulated_rms_norm_quantize(context, out, scale, upload(random_normal(16, 2), {1, 16}),
                                     upload(random_normal(16, 3), {16}), table, table,
                                     upload_i32({2}), 1e-5F, 16);
    return scale;
  });
}

TEST_P(Fused, SiluMulQuantizeIsItsChain) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c.rows << "x" << c.k << " in groups of " << c.group);
    auto both = random_normal(c.rows * 2 * c.k, 9);
    for (std::size_t i = 3; i < both.size(); i += 101) {
      both[i] *= 60.0F;  // exp leaves the floats
    }
    const TensorView fc1 = upload(both, {c.rows, 2 * c.k});
    const Codes fused =
        codes_of(c.rows, c.k, [&](OpContext& context, TensorView out, TensorView scale) {
          ops::silu_mul_quantize(context, out, scale, fc1.narrow(1, 0, c.k),
                                 fc1.narrow(1, c.k, c.k), c.group);
        });
    OpContext context = ctx();
    TensorView product = empty({c.rows, c.k});
    ops::silu_mul(context, product, fc1.narrow(1, 0, c.k), fc1.narrow(1, c.k, c.k));
    expect_same(fused, chain_end(product, c.group));
  }
}

TEST_P(Fused, NanAndInfinityBecomeANanScale) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    auto x = random_normal(3 * 64, 10);
    x[70] = bad;
    const Codes codes = codes_of(3, 64, [&](OpContext& context, TensorView out, TensorView scale) {
      ops::rotate_quantize_rows(context, out, scale, upload(x, {3, 64}), 16);
    });
    EXPECT_TRUE(std::isfinite(codes.scale[0]));
    EXPECT_TRUE(std::isnan(codes.scale[1]));
    EXPECT_TRUE(std::isfinite(codes.scale[2]));
    for (std::size_t i = 64; i < 128; ++i) {
      EXPECT_EQ(codes.values[i], 0);
    }
  }
}

TEST_P(Fused, NoRowsIsFine) {
  EXPECT_NO_THROW(codes_of(0, 64, [&](OpContext& context, TensorView out, TensorView scale) {
    ops::rotate_quantize_rows(context, out, scale, empty({0, 64}), 16);
  }));
}

TEST_P(Fused, QuantizedProductHasTheBitsOfLinear) {
  for (const auto& [rows, n, k, group] :
       {std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>{1, 1, 4, 4},
        {5, 7, 48, 16},
        {65, 63, 272, 0},
        {33, 130, 512, 256}}) {
    const auto w = random_normal(n * k, 11);
    OpContext context = ctx();
    TensorView wide = upload(w, {n, k});
    if (group != 0) {
      ops::rotate_rows(context, wide, group);
    }
    TensorView packed = empty({n, k}, DType::kI8);
    TensorView w_scale = empty({n});
    ops::quantize_rows(context, packed, w_scale, wide);
    const WeightMatrix matrix = {packed, w_scale, group};
    const TensorView x = upload(rows_with_outliers(rows, k), {rows, k});
    const TensorView bias = upload(random_normal(n, 12), {n});
    TensorView whole = empty({rows, n});
    ops::linear(context, whole, x, matrix, bias);
    TensorView codes = empty({rows, k}, DType::kI8);
    TensorView scale = empty({rows});
    ops::rotate_quantize_rows(context, codes, scale, x, group);
    TensorView halves = empty({rows, n});
    ops::linear_quantized(context, halves, codes, scale, matrix, bias);
    EXPECT_TRUE(identical_to(download(halves), download(whole)));
  }
}

}  // namespace
}  // namespace miniacc::testing
