#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include "core/error.h"

namespace miniacc {
namespace {

struct Expected {
  DType dtype;
  const char* name;
  std::int64_t elements;
  std::size_t bytes;
};

// GGUF block sizes as in the GGUF specification.
constexpr Expected kAll[] = {{DType::kF64, "f64", 1, 8},        {DType::kF32, "f32", 1, 4},
                             {DType::kF16, "f16", 1, 2},        {DType::kBF16, "bf16", 1, 2},
                             {DType::kF8E4M3, "f8_e4m3", 1, 1}, {DType::kF8E5M2, "f8_e5m2", 1, 1},
                             {DType::kI64, "i64", 1, 8},        {DType::kI32, "i32", 1, 4},
                             {DType::kI16, "i16", 1, 2},        {DType::kI8, "i8", 1, 1},
                             {DType::kU8, "u8", 1, 1},          {DType::kBool, "bool", 1, 1},
                             {DType::kQ4_0, "q4_0", 32, 18},    {DType::kQ8_0, "q8_0", 32, 34},
                             {DType::kQ4_K, "q4_k", 256, 144},  {DType::kQ5_K, "q5_k", 256, 176},
                             {DType::kQ6_K, "q6_k", 256, 210}};

TEST(DType, TableHoldsNameAndBlockOfEveryType) {
  std::set<std::string> names;
  for (const Expected& e : kAll) {
    EXPECT_EQ(dtype_name(e.dtype), e.name);
    EXPECT_EQ(block_elements(e.dtype), e.elements) << e.name;
    EXPECT_EQ(block_bytes(e.dtype), e.bytes) << e.name;
    EXPECT_EQ(is_block_type(e.dtype), e.elements > 1) << e.name;
    names.insert(e.name);
  }
  EXPECT_EQ(names.size(), std::size(kAll));
}

TEST(DType, ParseIsTheInverseOfName) {
  for (const Expected& e : kAll) {
    EXPECT_EQ(parse_dtype(e.name), e.dtype);
  }
  for (const char* name : {"", "F32", "f3", "f32 ", "q4", "half"}) {
    EXPECT_EQ(parse_dtype(name), std::nullopt) << name;
  }
}

TEST(DType, StorageBytesCountsWholeBlocks) {
  EXPECT_EQ(storage_bytes(DType::kF32, 0), 0U);
  EXPECT_EQ(storage_bytes(DType::kF32, 3), 12U);
  EXPECT_EQ(storage_bytes(DType::kQ6_K, 512), 420U);
  EXPECT_EQ(storage_bytes(DType::kQ6_K, 511), std::nullopt);
  EXPECT_EQ(storage_bytes(DType::kQ4_0, 16), std::nullopt);
}

TEST(DType, StorageBytesRefusesNegativeAndOverflowingCounts) {
  EXPECT_EQ(storage_bytes(DType::kF32, -1), std::nullopt);
  EXPECT_EQ(storage_bytes(DType::kF32, std::numeric_limits<std::int64_t>::max()), std::nullopt);
  EXPECT_EQ(storage_bytes(DType::kI8, std::numeric_limits<std::int64_t>::max()),
            static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max()));
}

TEST(DType, ValueOutsideTheTableIsADefect) {
  EXPECT_THROW(dtype_name(static_cast<DType>(99)), InternalError);
}

}  // namespace
}  // namespace miniacc
