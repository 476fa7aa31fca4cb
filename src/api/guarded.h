#pragma once

#include <fmt/format.h>

#include <exception>
#include <new>

#include "core/error.h"
#include "device/device_error.h"

namespace miniacc {

/// The job boundary: whatever a stage throws ends here as one Error.
template <typename Body>
auto guarded(const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const ErrorException& error) {
    return tl::unexpected(error.error());
  } catch (const DeviceError& error) {
    return fail(ErrorCode::kInternal, fmt::format("the GPU failed: {}", error.what()));
  } catch (const InternalError& error) {
    return fail(ErrorCode::kInternal, fmt::format("defect in miniacc: {}", error.what()));
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "the system ran out of memory");
  } catch (const std::exception& error) {
    return fail(ErrorCode::kInternal, error.what());
  }
}

}  // namespace miniacc
