#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cuda_runtime.h"
#include "emulation.h"

namespace cuda_emulation {

/// Most dynamic shared memory that any card gives a block.
inline constexpr std::size_t kMaxDynamicShared = std::size_t{227} << 10;

/// Runs all blocks of a launch on this thread, which must be the emulation's own: it overwrites the
/// thread_local variables of the program. What went wrong, or nothing.
std::optional<std::string> run_launch(const Launch& launch, const Schedule& schedule,
                                      std::uint64_t number);

/// For the handler of memory faults: when a kernel is running on this thread, stops it with this
/// trouble and does not return.
void stop_after_fault(const char* trouble);

}  // namespace cuda_emulation
