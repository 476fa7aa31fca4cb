#include "kernels/contract.h"

#include <algorithm>
#include <cstdint>

namespace miniacc::ops {
namespace {

struct Extent {
  std::int64_t first = 0;  // bytes
  std::int64_t last = 0;   // one past
};

/// The bytes from the first to the last element of axes [axis, rank).
std::int64_t span_bytes(const ConstTensorView& view, int axis) {
  std::int64_t elements = 1;
  for (int i = axis; i < view.shape.rank(); ++i) {
    elements += (view.dim(i) - 1) * view.stride(i);
  }
  return elements * static_cast<std::int64_t>(block_bytes(view.dtype));
}

Extent extent(const ConstTensorView& view) {
  const auto first = static_cast<std::int64_t>(
      reinterpret_cast<std::intptr_t>(view.data));  // only compared, never read through
  return {first, first + span_bytes(view, 0)};
}

}  // namespace

bool may_overlap(const ConstTensorView& a, const ConstTensorView& b) {
  if (a.empty() || b.empty() || a.num_elements() == 0 || b.num_elements() == 0 ||
      !(a.device == b.device)) {
    return false;
  }
  const Extent ea = extent(a);
  const Extent eb = extent(b);
  if (ea.last <= eb.first || eb.last <= ea.first) {
    return false;
  }
  if (a.shape.rank() < 2 || b.shape.rank() < 2) {
    return true;
  }
  const std::int64_t row_a = a.stride(0) * static_cast<std::int64_t>(block_bytes(a.dtype));
  const std::int64_t row_b = b.stride(0) * static_cast<std::int64_t>(block_bytes(b.dtype));
  const std::int64_t width_a = span_bytes(a, 1);
  const std::int64_t width_b = span_bytes(b, 1);
  if (row_a != row_b || width_a > row_a || width_b > row_a) {
    return true;
  }
  // Rows of both advance together: columns [0, width_a) against [shift, shift + width_b), cyclic.
  const std::int64_t shift = (((eb.first - ea.first) % row_a) + row_a) % row_a;
  return shift < width_a || shift + width_b > row_a;
}

bool all_on(DeviceId device, std::initializer_list<ConstTensorView> views) {
  return std::all_of(views.begin(), views.end(), [&](const ConstTensorView& view) {
    return view.empty() || view.device == device;
  });
}

bool all_f32_on(DeviceId device, std::initializer_list<ConstTensorView> views) {
  return all_on(device, views) &&
         std::all_of(views.begin(), views.end(), [](const ConstTensorView& view) {
           return view.empty() || view.dtype == DType::kF32;
         });
}

bool is_rotation_group(std::int64_t value) {
  if (value < 4) {
    return false;
  }
  while (value > 1 && value % 4 == 0) {
    value /= 4;
  }
  return value == 1;
}

}  // namespace miniacc::ops
