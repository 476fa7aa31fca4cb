#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/make_checkpoint.h"
#include "checkpoint/output_files.h"

namespace miniacc {

using SyntheticOutput = OutputTensor;

/// Fills rows [first, first + count) of a canonical tensor of a made-up model as f32: what every
/// format holds for this seed, with weight norms folded.
[[nodiscard]] std::function<void(std::int64_t first, std::int64_t count, float* out)>
synthetic_values(Component component, const ExpectedTensor& tensor, std::uint64_t seed);

/// The stored tensors of one component in the naming, row order and types of a format.
[[nodiscard]] std::vector<SyntheticOutput> synthetic_outputs(const SyntheticModel& model,
                                                             Component component,
                                                             const MakeCheckpointOptions& options);

}  // namespace miniacc
