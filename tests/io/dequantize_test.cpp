#include "io/dequantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/error.h"
#include "io/golden_gguf.h"
#include "support/compare.h"

namespace miniacc {
namespace {

template <typename T>
std::vector<float> convert(DType dtype, const std::vector<T>& values) {
  std::vector<float> out(values.size());
  dequantize(dtype, std::as_bytes(std::span(values)), static_cast<std::int64_t>(values.size()),
             out.data());
  return out;
}

TEST(Dequantize, MatchesThePublicPackageBitForBit) {
  const TensorFile stored = testing::golden_gguf("types.gguf");
  const TensorFile reference = testing::golden_gguf("types_f32.safetensors");
  ASSERT_EQ(stored.entries().size(), 11U);
  for (const TensorEntry& entry : stored.entries()) {
    const TensorEntry* wanted = reference.find(entry.name);
    ASSERT_NE(wanted, nullptr) << entry.name;
    EXPECT_EQ(entry.shape, wanted->shape) << entry.name;
    EXPECT_TRUE(testing::identical_to(testing::values_of(stored, entry),
                                      testing::values_of(reference, *wanted)))
        << entry.name;
  }
}

TEST(Dequantize, ConvertsPlainTypesByValue) {
  EXPECT_EQ(convert<double>(DType::kF64, {0.1, -2.0}), (std::vector<float>{0.1F, -2.0F}));
  EXPECT_EQ(convert<std::uint16_t>(DType::kF16, {0x3C00, 0xC000, 0x0001}),
            (std::vector<float>{1.0F, -2.0F, std::ldexp(1.0F, -24)}));
  EXPECT_EQ(convert<std::uint16_t>(DType::kBF16, {0x3F80, 0xC000}),
            (std::vector<float>{1.0F, -2.0F}));
  EXPECT_EQ(convert<std::uint8_t>(DType::kF8E4M3, {0x38, 0x7E, 0x80 | 0x01}),
            (std::vector<float>{1.0F, 448.0F, -std::ldexp(1.0F, -9)}));
  EXPECT_EQ(convert<std::uint8_t>(DType::kF8E5M2, {0x3C, 0x7B}),
            (std::vector<float>{1.0F, 57344.0F}));
  EXPECT_TRUE(std::isnan(convert<std::uint8_t>(DType::kF8E4M3, {0x7F})[0]));
  EXPECT_TRUE(std::isinf(convert<std::uint8_t>(DType::kF8E5M2, {0x7C})[0]));
  EXPECT_EQ(convert<std::int64_t>(DType::kI64, {-(std::int64_t{1} << 40)}),
            (std::vector<float>{-std::ldexp(1.0F, 40)}));
  EXPECT_EQ(convert<std::int32_t>(DType::kI32, {-70000}), (std::vector<float>{-70000.0F}));
  EXPECT_EQ(convert<std::int16_t>(DType::kI16, {-30000}), (std::vector<float>{-30000.0F}));
  EXPECT_EQ(convert<std::int8_t>(DType::kI8, {-128, 127}), (std::vector<float>{-128.0F, 127.0F}));
  EXPECT_EQ(convert<std::uint8_t>(DType::kU8, {255}), (std::vector<float>{255.0F}));
  EXPECT_EQ(convert<std::uint8_t>(DType::kBool, {0, 1, 2}), (std::vector<float>{0.0F, 1.0F, 1.0F}));
}

TEST(Dequantize, KeepsNonFiniteValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto f32 = convert<float>(DType::kF32, {infinity, std::nanf("")});
  EXPECT_EQ(f32[0], infinity);
  EXPECT_TRUE(std::isnan(f32[1]));
  EXPECT_EQ(convert<std::uint16_t>(DType::kF16, {0xFC00})[0], -infinity);
}

TEST(Dequantize, NeedsNoAlignment) {
  std::vector<std::byte> bytes(1 + 2 * sizeof(double));
  const std::vector<double> values = {1.5, -0.25};
  std::memcpy(bytes.data() + 1, values.data(), 2 * sizeof(double));
  std::vector<float> out(2);
  dequantize(DType::kF64, std::span(bytes).subspan(1), 2, out.data());
  EXPECT_EQ(out, (std::vector<float>{1.5F, -0.25F}));
}

TEST(Dequantize, RequiresMatchingSizes) {
  std::vector<float> out(64);
  const std::vector<std::byte> bytes(34);
  EXPECT_THROW(dequantize(DType::kQ8_0, bytes, 64, out.data()), InternalError);
  EXPECT_THROW(dequantize(DType::kQ8_0, bytes, 31, out.data()), InternalError);
  EXPECT_THROW(dequantize(DType::kF32, bytes, 8, out.data()), InternalError);
  dequantize(DType::kF32, {}, 0, nullptr);
}

}  // namespace
}  // namespace miniacc
