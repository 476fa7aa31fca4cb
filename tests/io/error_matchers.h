#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"

namespace miniacc::testing {

/// The result is an error of this code whose message says this.
template <typename T>
void expect_error(const Result<T>& result, const std::string& message,
                  ErrorCode code = ErrorCode::kInvalidInput) {
  ASSERT_FALSE(result.has_value()) << "succeeded, wanted: " << message;
  EXPECT_EQ(error_code_name(result.error().code), std::string(error_code_name(code)));
  EXPECT_THAT(result.error().message, ::testing::HasSubstr(message));
}

}  // namespace miniacc::testing
