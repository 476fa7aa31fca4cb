#pragma once

#include <stdexcept>

namespace miniacc {

/// A call into the device's driver that failed, or work on the device that did (reported by a later
/// call, since launches return at once). Caught at the job boundary only. Running out of memory is
/// no DeviceError but an Error, as it is an answer that the caller expects.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace miniacc
