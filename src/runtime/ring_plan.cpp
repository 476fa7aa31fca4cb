#include "runtime/ring_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace miniacc {

std::int64_t RingPlan::num_resident() const {
  return std::count(resident.begin(), resident.end(), true);
}

std::size_t RingPlan::device_bytes() const {
  return static_cast<std::size_t>(num_resident() + num_slots) * layer_bytes;
}

std::size_t RingPlan::bytes_per_pass() const {
  return static_cast<std::size_t>(num_streamed()) * layer_bytes;
}

Result<RingPlan> plan_ring(std::int64_t num_layers, std::size_t layer_bytes, std::int64_t num_slots,
                           std::size_t budget_bytes) {
  MINIACC_REQUIRE(num_layers > 0 && layer_bytes > 0 && num_slots > 0,
                  "plan_ring: layers, their bytes and slots are positive");
  RingPlan plan;
  plan.layer_bytes = layer_bytes;
  const auto places = static_cast<std::int64_t>(
      std::min(budget_bytes / layer_bytes, static_cast<std::size_t>(num_layers)));
  if (places == num_layers) {
    plan.resident.assign(static_cast<std::size_t>(num_layers), true);
    return plan;
  }
  if (places < num_slots) {
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("streaming {} layers of {} bytes needs {} slots, {} bytes of device "
                            "memory, and {} are left for them",
                            num_layers, layer_bytes, num_slots,
                            static_cast<std::size_t>(num_slots) * layer_bytes, budget_bytes));
  }
  plan.num_slots = num_slots;
  const std::int64_t num_resident = places - num_slots;
  for (std::int64_t i = 0; i < num_layers; ++i) {
    // Layer i is resident where the line of slope num_resident / num_layers passes a whole number.
    plan.resident.push_back((i + 1) * num_resident / num_layers != i * num_resident / num_layers);
  }
  return plan;
}

}  // namespace miniacc
