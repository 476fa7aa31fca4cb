#pragma once

#include <cstdint>
#include <initializer_list>

#include "core/tensor.h"

namespace miniacc::ops {

/// True when two views share at least one byte. Exact for row-strided matrices over one buffer
/// (say the q, k and v columns of one projection); otherwise errs towards true.
bool may_overlap(const ConstTensorView& a, const ConstTensorView& b);

/// True when every view that is not empty is f32 and lives on `device`.
bool all_f32_on(DeviceId device, std::initializer_list<ConstTensorView> views);

/// True when every view that is not empty lives on `device`.
bool all_on(DeviceId device, std::initializer_list<ConstTensorView> views);

/// True for 4, 16, 64, ...: the sizes of ConvRot groups.
bool is_rotation_group(std::int64_t value);

}  // namespace miniacc::ops
