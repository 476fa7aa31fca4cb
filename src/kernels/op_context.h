#pragma once

#include "core/cancel_token.h"
#include "core/weight_matrix.h"
#include "device/device.h"

struct CUstream_st;  // what cudaStream_t points to

namespace miniacc {

/// What every op gets: where to take scratch memory from, how many threads it may use, the token
/// that stops long work, and the stream that orders work on a CUDA device. On such a device an op
/// returns once its work is in the stream; what goes wrong in it is reported by a later call. CPU
/// ops ignore the stream, CUDA ops the number of threads.
struct OpContext {
  Device& device;
  int num_threads = 1;
  const CancelToken* cancel = nullptr;
  CUstream_st* stream = nullptr;  ///< of device; null: its default stream
  /// Host memory for what models compute on the host; null: `device`, which then is a CPU device.
  Device* host = nullptr;

  /// Where models put what the host computes or reads.
  [[nodiscard]] Device& host_device() const { return host != nullptr ? *host : device; }

  /// Throws ErrorException(kCancelled) once the job was cancelled; models call it between blocks.
  void check_cancelled() const {
    if (cancel != nullptr) {
      cancel->check();
    }
  }
};

}  // namespace miniacc
