#pragma once

#include <stdexcept>
#include <utility>

#include "miniacc/error.h"

namespace miniacc {

/// A broken contract inside MiniAcc: wrong shape, dtype, device. Caught at the job boundary only.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// An Error that crosses code which has no Result in its signature (allocation inside a forward
/// pass, cancellation between blocks). Caught at the job boundary, which returns the Error.
class ErrorException : public std::runtime_error {
 public:
  explicit ErrorException(Error error)
      : std::runtime_error(error.message), error_(std::move(error)) {}
  [[nodiscard]] const Error& error() const { return error_; }

 private:
  Error error_;
};

[[noreturn]] void throw_internal_error(const char* what, const char* file, int line);

}  // namespace miniacc

/// Checks what only a defect of ours can break; throws InternalError with file and line.
#define MINIACC_REQUIRE(condition, what)                           \
  do {                                                             \
    if (!(condition)) {                                            \
      ::miniacc::throw_internal_error((what), __FILE__, __LINE__); \
    }                                                              \
  } while (false)
