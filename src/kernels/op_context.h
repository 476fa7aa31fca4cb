#pragma once

#include "core/cancel_token.h"
#include "core/weight_matrix.h"
#include "device/device.h"

namespace miniacc {

/// What every op gets: where to take scratch memory from, how many threads it may use, and the
/// token that stops long work.
struct OpContext {
  Device& device;
  int num_threads = 1;
  const CancelToken* cancel = nullptr;

  /// Throws ErrorException(kCancelled) once the job was cancelled; models call it between blocks.
  void check_cancelled() const {
    if (cancel != nullptr) {
      cancel->check();
    }
  }
};

}  // namespace miniacc
