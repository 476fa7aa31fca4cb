#include "core/error.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace miniacc {
namespace {

Result<int> parse(bool good) {
  if (good) {
    return 7;
  }
  return fail(ErrorCode::kNotFound, "no such thing");
}

Result<std::string> use_assign(bool good) {
  MINIACC_ASSIGN(const int value, parse(good));
  return std::to_string(value);
}

Result<std::unique_ptr<int>> move_only() { return std::make_unique<int>(3); }

Result<int> assign_move_only() {
  MINIACC_ASSIGN(std::unique_ptr<int> value, move_only());
  return *value;
}

Status use_return_if_error(bool good) {
  MINIACC_RETURN_IF_ERROR(parse(good));
  return {};
}

TEST(Error, AssignTakesTheValueOrReturnsTheError) {
  EXPECT_EQ(use_assign(true).value(), "7");
  const auto failed = use_assign(false);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(failed.error().message, "no such thing");
  EXPECT_EQ(assign_move_only().value(), 3);
}

TEST(Error, ReturnIfErrorPassesTheErrorOn) {
  EXPECT_TRUE(use_return_if_error(true));
  EXPECT_EQ(use_return_if_error(false).error().code, ErrorCode::kNotFound);
}

TEST(Error, RequireThrowsWithPlaceAndReason) {
  EXPECT_NO_THROW(MINIACC_REQUIRE(1 + 1 == 2, "sums"));
  try {
    MINIACC_REQUIRE(1 + 1 == 3, "sums differ");
    FAIL() << "did not throw";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("sums differ"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("error_test.cpp:"), std::string::npos);
  }
}

TEST(Error, ExceptionCarriesTheError) {
  try {
    throw ErrorException({ErrorCode::kOutOfMemory, "too large"});
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "too large");
    EXPECT_EQ(dynamic_cast<const ErrorException&>(error).error().code, ErrorCode::kOutOfMemory);
  }
}

TEST(Error, ExitCodeTellsUsageFromFailure) {
  const std::pair<ErrorCode, int> codes[] = {
      {ErrorCode::kInvalidArgument, 2}, {ErrorCode::kInvalidInput, 2}, {ErrorCode::kNotFound, 2},
      {ErrorCode::kUnsupported, 2},     {ErrorCode::kOutOfMemory, 1},  {ErrorCode::kIo, 1},
      {ErrorCode::kCancelled, 1},       {ErrorCode::kInternal, 1}};
  for (const auto& [code, expected] : codes) {
    EXPECT_EQ(exit_code(code), expected) << error_code_name(code);
  }
  EXPECT_STREQ(error_code_name(ErrorCode::kInvalidInput), "invalid_input");
  EXPECT_STREQ(error_code_name(ErrorCode::kInternal), "internal");
}

}  // namespace
}  // namespace miniacc
