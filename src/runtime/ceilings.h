#pragma once

#include "kernels/op_context.h"

namespace miniacc {

/// What the device of a job can do at its best, measured now: the limits that measured times are
/// set against.
struct Ceilings {
  double operations_per_second = 0.0;    ///< of one large matrix product in the job's precision
  double copy_bytes_per_second = 0.0;    ///< inside the device, bytes read and written
  double upload_bytes_per_second = 0.0;  ///< from pinned host memory; 0 on the CPU
};

/// Takes about a gigabyte of device memory on a GPU and a second; a quarter of a second on a CPU.
/// kOutOfMemory where the device holds too little.
[[nodiscard]] Result<Ceilings> measure_ceilings(OpContext& ctx, Precision precision);

}  // namespace miniacc
