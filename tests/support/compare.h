#pragma once

#include <gtest/gtest.h>

#include <span>

namespace miniacc::testing {

/// ‖out - reference‖ / ‖reference‖ in double; infinity when out holds a non-finite value or sizes
/// differ. With a zero reference, ‖out‖.
double relative_error(std::span<const float> out, std::span<const float> reference);
double relative_error(std::span<const float> out, std::span<const double> reference);
double max_abs_error(std::span<const float> out, std::span<const float> reference);

/// Succeeds when relative_error <= bound; the message gives error, bound and worst element.
::testing::AssertionResult close_to(std::span<const float> out, std::span<const float> reference,
                                    double bound);
::testing::AssertionResult close_to(std::span<const float> out, std::span<const double> reference,
                                    double bound);
/// Succeeds when every bit agrees; the message names the first difference.
::testing::AssertionResult identical_to(std::span<const float> out,
                                        std::span<const float> reference);

}  // namespace miniacc::testing
