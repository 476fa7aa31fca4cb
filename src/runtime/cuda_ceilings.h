#pragma once

#include "runtime/ceilings.h"

/// The part of ceilings.h that only builds with CUDA have.
namespace miniacc::cuda {

[[nodiscard]] Result<Ceilings> measure_ceilings(OpContext& ctx, Precision precision);

}  // namespace miniacc::cuda
