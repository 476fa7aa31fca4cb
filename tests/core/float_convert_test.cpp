#include "core/float_convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace miniacc {
namespace {

/// The value that IEEE-like bits stand for, from the definition: the oracle of every test here.
double decode(std::uint32_t bits, int exponent_bits, int mantissa_bits, bool has_infinity) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const std::uint32_t mantissa = bits & ((1U << mantissa_bits) - 1U);
  const std::uint32_t exponent = (bits >> mantissa_bits) & ((1U << exponent_bits) - 1U);
  const double sign = ((bits >> (exponent_bits + mantissa_bits)) & 1U) != 0 ? -1.0 : 1.0;
  const std::uint32_t top = (1U << exponent_bits) - 1U;
  if (exponent == top && has_infinity) {
    return mantissa == 0 ? sign * INFINITY : NAN;
  }
  if (exponent == top && mantissa == (1U << mantissa_bits) - 1U) {
    return NAN;  // e4m3
  }
  if (exponent == 0) {
    return sign * std::ldexp(static_cast<double>(mantissa), 1 - bias - mantissa_bits);
  }
  return sign * std::ldexp(1.0 + std::ldexp(static_cast<double>(mantissa), -mantissa_bits),
                           static_cast<int>(exponent) - bias);
}

void expect_same(float got, double wanted, std::uint32_t bits) {
  if (std::isnan(wanted)) {
    ASSERT_TRUE(std::isnan(got)) << bits;
    return;
  }
  ASSERT_EQ(static_cast<double>(got), wanted) << bits;
  ASSERT_EQ(std::signbit(got), std::signbit(wanted)) << bits;
}

TEST(FloatConvert, EveryBf16PatternIsExact) {
  for (std::uint32_t bits = 0; bits <= 0xFFFFU; ++bits) {
    expect_same(bf16_to_float(static_cast<std::uint16_t>(bits)), decode(bits, 8, 7, true), bits);
  }
}

TEST(FloatConvert, EveryF16PatternIsExact) {
  for (std::uint32_t bits = 0; bits <= 0xFFFFU; ++bits) {
    expect_same(f16_to_float(static_cast<std::uint16_t>(bits)), decode(bits, 5, 10, true), bits);
  }
}

TEST(FloatConvert, EveryF8PatternIsExact) {
  for (std::uint32_t bits = 0; bits <= 0xFFU; ++bits) {
    expect_same(f8e4m3_to_float(static_cast<std::uint8_t>(bits)), decode(bits, 4, 3, false), bits);
    expect_same(f8e5m2_to_float(static_cast<std::uint8_t>(bits)), decode(bits, 5, 2, true), bits);
  }
}

/// Walks all neighbours low < high of a format's non-negative finite values and checks rounding of
/// the points between: the half-way point goes to the even pattern, its float neighbours to the
/// nearer one; patterns themselves come back; signs mirror.
template <typename Bits, typename ToFloat, typename FromFloat>
void check_rounding(Bits largest_finite, Bits sign_bit, ToFloat to_float, FromFloat from_float) {
  const float inf = std::numeric_limits<float>::infinity();
  for (Bits bits = 0; bits < largest_finite; ++bits) {
    const float low = to_float(bits);
    const Bits next = static_cast<Bits>(bits + 1);
    const float high = to_float(next);
    const double half = (static_cast<double>(low) + static_cast<double>(high)) / 2.0;
    const auto middle = static_cast<float>(half);
    ASSERT_EQ(from_float(low), bits);
    ASSERT_EQ(from_float(-low), static_cast<Bits>(bits | sign_bit));
    if (static_cast<double>(middle) != half) {
      continue;  // a float subnormal cannot hold the half-way point
    }
    const Bits even = (bits & 1U) == 0 ? bits : next;
    ASSERT_EQ(from_float(middle), even) << bits;
    ASSERT_EQ(from_float(-middle), static_cast<Bits>(even | sign_bit)) << bits;
    ASSERT_EQ(from_float(std::nextafter(middle, -inf)), bits);
    ASSERT_EQ(from_float(std::nextafter(middle, inf)), next);
  }
  ASSERT_EQ(from_float(to_float(largest_finite)), largest_finite);
}

TEST(FloatConvert, ToBf16RoundsEveryIntervalToNearestEven) {
  check_rounding<std::uint16_t>(0x7F7F, 0x8000, bf16_to_float, float_to_bf16);
}

TEST(FloatConvert, ToF16RoundsEveryIntervalToNearestEven) {
  check_rounding<std::uint16_t>(0x7BFF, 0x8000, f16_to_float, float_to_f16);
}

TEST(FloatConvert, ToF8E4M3RoundsEveryIntervalToNearestEven) {
  check_rounding<std::uint8_t>(0x7E, 0x80, f8e4m3_to_float, float_to_f8e4m3);
}

TEST(FloatConvert, ToBf16OverflowsToInfinityAndKeepsNan) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x7F7F7FFFU)), 0x7F7F);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x7F7F8000U)), 0x7F80);
  EXPECT_EQ(float_to_bf16(-inf), 0xFF80);
  // A NaN whose payload sits in the bits that are cut must not become infinity.
  for (const std::uint32_t bits : {0x7F800001U, 0xFF800001U, 0x7FFFFFFFU, 0xFFFFFFFFU}) {
    EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(bits)))));
  }
  EXPECT_EQ(round_to_bf16(1.0F + 0x1.0p-8F), 1.0F);
  EXPECT_EQ(round_to_bf16(1.0F + 0x1.8p-8F), 1.0F + 0x1.0p-7F);
}

TEST(FloatConvert, ToF16OverflowsAt65520) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(float_to_f16(65504.0F), 0x7BFF);
  EXPECT_EQ(float_to_f16(std::nextafter(65520.0F, 0.0F)), 0x7BFF);
  EXPECT_EQ(float_to_f16(65520.0F), 0x7C00);
  EXPECT_EQ(float_to_f16(-1e30F), 0xFC00);
  EXPECT_EQ(float_to_f16(inf), 0x7C00);
  EXPECT_EQ(float_to_f16(std::numeric_limits<float>::denorm_min()), 0);
  for (const std::uint32_t bits : {0x7F800001U, 0xFFC00000U}) {
    EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(std::bit_cast<float>(bits)))));
  }
}

TEST(FloatConvert, ToF8E4M3SaturatesAndKeepsNan) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(float_to_f8e4m3(448.0F), 0x7E);
  EXPECT_EQ(float_to_f8e4m3(1e30F), 0x7E);
  EXPECT_EQ(float_to_f8e4m3(inf), 0x7E);
  EXPECT_EQ(float_to_f8e4m3(-inf), 0xFE);
  EXPECT_EQ(float_to_f8e4m3(-0.0F), 0x80);
  EXPECT_EQ(float_to_f8e4m3(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_TRUE(std::isnan(f8e4m3_to_float(float_to_f8e4m3(std::nanf("")))));
}

}  // namespace
}  // namespace miniacc
