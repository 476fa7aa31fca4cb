#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace miniacc {

/// What kind of trouble an Error reports. The application turns it into an exit code.
enum class ErrorCode {
  kInvalidArgument,  ///< a flag or request field is wrong
  kInvalidInput,     ///< a file's content is wrong, hostile, or of another kind than wanted
  kNotFound,         ///< a file, tensor or name does not exist
  kUnsupported,      ///< understood, but not something this build can do
  kOutOfMemory,      ///< a memory budget or the machine's memory does not suffice
  kIo,               ///< the operating system refused to read or write
  kCancelled,        ///< the user or the caller stopped the job
  kInternal,         ///< a defect of ours
};

/// Short machine-readable name, e.g. "invalid_input".
const char* error_code_name(ErrorCode code);

/// Exit code of a program that ends on this error: 2 for usage or input, 1 for failure.
int exit_code(ErrorCode code);

/// An expected failure. `message` is one sentence that names what, where, wanted and got.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

[[nodiscard]] inline tl::unexpected<Error> fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

}  // namespace miniacc

#define MINIACC_CONCAT_INNER(a, b) a##b
#define MINIACC_CONCAT(a, b) MINIACC_CONCAT_INNER(a, b)

/// `MINIACC_ASSIGN(auto x, f())`: x = the value of f(), or return its Error from this function.
#define MINIACC_ASSIGN(declaration, expression)                                          \
  auto MINIACC_CONCAT(miniacc_result_, __LINE__) = (expression);                         \
  if (!MINIACC_CONCAT(miniacc_result_, __LINE__)) {                                      \
    return tl::unexpected(std::move(MINIACC_CONCAT(miniacc_result_, __LINE__)).error()); \
  }                                                                                      \
  declaration = *std::move(MINIACC_CONCAT(miniacc_result_, __LINE__))

/// Returns the Error of a Status expression from this function, if it is one.
#define MINIACC_RETURN_IF_ERROR(expression)                     \
  do {                                                          \
    if (auto miniacc_status = (expression); !miniacc_status) {  \
      return tl::unexpected(std::move(miniacc_status).error()); \
    }                                                           \
  } while (false)
