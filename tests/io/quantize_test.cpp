#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "io/dequantize.h"
#include "io/golden_gguf.h"
#include "support/compare.h"
#include "support/random.h"

namespace miniacc {
namespace {

std::vector<std::byte> stored(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(
      storage_bytes(dtype, static_cast<std::int64_t>(values.size())).value());
  quantize(dtype, values, bytes);
  return bytes;
}

std::vector<float> round_trip(DType dtype, const std::vector<float>& values) {
  std::vector<float> out(values.size());
  dequantize(dtype, stored(dtype, values), static_cast<std::int64_t>(values.size()), out.data());
  return out;
}

TEST(Quantize, MatchesThePublicPackageBitForBit) {
  const TensorFile golden = testing::golden_gguf("quantized.safetensors");
  const std::vector<float> values = testing::values_of(golden, *golden.find("values"));
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kF16, DType::kBF16}) {
    const TensorEntry* entry = golden.find(dtype_name(dtype));
    ASSERT_NE(entry, nullptr);
    const auto wanted = golden.bytes(*entry).value();
    const auto got = stored(dtype, values);
    ASSERT_EQ(got.size(), wanted.size()) << dtype_name(dtype);
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], wanted[i]) << dtype_name(dtype) << " byte " << i;
    }
  }
}

TEST(Quantize, RelativeErrorOnNormalValues) {
  const std::vector<float> values = testing::random_normal(1 << 16, /*seed=*/5);
  const auto error = [&](DType dtype) {
    return testing::relative_error(round_trip(dtype, values), std::span<const float>(values));
  };
  EXPECT_EQ(error(DType::kF32), 0.0);
  EXPECT_LT(error(DType::kF16), 2.2e-4);     // measured 2.08e-4
  EXPECT_LT(error(DType::kBF16), 1.8e-3);    // measured 1.66e-3
  EXPECT_LT(error(DType::kF8E4M3), 2.8e-2);  // measured 2.65e-2
  EXPECT_LT(error(DType::kQ8_0), 6e-3);      // measured 5.36e-3
  EXPECT_LT(error(DType::kQ4_0), 9.0e-2);    // measured 8.59e-2
  EXPECT_LT(error(DType::kQ4_K), 7.5e-2);    // measured 7.28e-2
}

TEST(Quantize, Q4KIsExactOnItsOwnGrid) {
  // Values d * s * q - dmin * m of one block: what a reader gets is what was put in.
  std::vector<float> values(256);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = 0.5F * static_cast<float>(i % 16) - 2.0F;
  }
  EXPECT_LT(testing::max_abs_error(round_trip(DType::kQ4_K, values), values), 2e-3);
}

TEST(Quantize, Q4KHandlesExtremeBlocks) {
  const auto check = [](const std::vector<float>& values, double bound, const char* what) {
    const std::vector<float> out = round_trip(DType::kQ4_K, values);
    EXPECT_LE(testing::max_abs_error(out, values), bound) << what;
  };
  check(std::vector<float>(256, 0.0F), 0.0, "zeros");
  check(std::vector<float>(256, 3.0F), 3e-3, "constant");
  check(std::vector<float>(256, -3.0F), 3e-3, "negative constant");
  check(std::vector<float>(256, 1e-30F), 1.001e-30, "below the smallest f16 scale");
  check(std::vector<float>(256, 65504.0F), 70.0, "largest");
  std::vector<float> one(256, 0.0F);
  one[100] = 1000.0F;
  check(one, 1.0, "one outlier");
  one[100] = -1000.0F;
  check(one, 1.0, "one negative outlier");
  std::vector<float> mixed(256);
  for (std::size_t i = 0; i < mixed.size(); ++i) {
    mixed[i] = (i / 32 % 2 == 0 ? 100.0F : 1.0F) * std::sin(static_cast<float>(i));
  }
  check(mixed, 200.0 / 15 / 2 * 1.3, "parts of unlike range");
}

TEST(Quantize, RoundsTiesToEvenAndSaturates) {
  EXPECT_EQ(round_trip(DType::kI8, {0.5F, 1.5F, -2.5F, 1000.0F, -1000.0F}),
            (std::vector<float>{0.0F, 2.0F, -2.0F, 127.0F, -128.0F}));
  EXPECT_EQ(round_trip(DType::kF8E4M3, {1.0625F, 1.1875F, 1e6F, -1e6F}),
            (std::vector<float>{1.0F, 1.25F, 448.0F, -448.0F}));
  EXPECT_EQ(round_trip(DType::kBF16, {1.00390625F, 1.01171875F}),
            (std::vector<float>{1.0F, 1.015625F}));
}

TEST(Quantize, RequiresFiniteValuesForIntegersAndBlocks) {
  for (const DType dtype : {DType::kI8, DType::kQ8_0, DType::kQ4_0, DType::kQ4_K}) {
    std::vector<float> values(256, 1.0F);
    values[17] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_THROW(stored(dtype, values), InternalError) << dtype_name(dtype);
    values[17] = std::numeric_limits<float>::infinity();
    EXPECT_THROW(stored(dtype, values), InternalError) << dtype_name(dtype);
    values[17] = 1e30F;
    EXPECT_THROW(stored(dtype, values), InternalError) << dtype_name(dtype);
  }
  EXPECT_TRUE(std::isnan(round_trip(DType::kF16, {std::nanf("")})[0]));
}

TEST(Quantize, RequiresMatchingSizesAndAKnownTarget) {
  std::vector<std::byte> out(33);
  EXPECT_THROW(quantize(DType::kQ8_0, std::vector<float>(32), out), InternalError);
  std::vector<std::byte> q6(210);
  EXPECT_THROW(quantize(DType::kQ6_K, std::vector<float>(256), q6), InternalError);
}

}  // namespace
}  // namespace miniacc
