#pragma once

#include "runtime/weight_streams.h"

/// The part of weight_streams.h that only builds with CUDA have.
namespace miniacc::cuda {

[[nodiscard]] Result<std::unique_ptr<WeightStreams>> make_weight_streams(
    ComputeDevice& compute, const StreamOptions& options);

}  // namespace miniacc::cuda
