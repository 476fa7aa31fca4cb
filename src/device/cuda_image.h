#pragma once

namespace miniacc::cuda {

/// True when this build holds machine code that the current device can run. All .cu files are built
/// for the same architectures, so one kernel answers for all.
[[nodiscard]] bool has_code_for_current_device();

}  // namespace miniacc::cuda
