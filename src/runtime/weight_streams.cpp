#include "runtime/weight_streams.h"

#include "core/build_config.h"
#include "runtime/cuda_weight_streams.h"

namespace miniacc {

Result<std::unique_ptr<WeightStreams>> make_weight_streams(ComputeDevice& compute,
                                                           const StreamOptions& options) {
  MINIACC_REQUIRE(compute.card && compute.pinned && compute.arena != nullptr,
                  "make_weight_streams: a CUDA device computes");
  if constexpr (kHasCuda) {
    return cuda::make_weight_streams(compute, options);
  } else {
    static_cast<void>(options);
    return fail(ErrorCode::kUnsupported, "this build has no CUDA");
  }
}

}  // namespace miniacc
