#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/ring_plan.h"
#include "runtime/stage_plan.h"
#include "runtime/weight_streams.h"

namespace miniacc {

/// The layers of one stack that want places in device memory.
struct RingRequest {
  std::int64_t num_layers = 0;
  std::size_t layer_bytes = 0;
  bool one_pass = false;  ///< walked once a request: residents that will not stay are no use
};
struct RingChoice {
  RingPlan plan;
  bool others_go = false;  ///< layers of other stacks give their memory back
};
/// How a stack's layers share a ceiling with what the stage takes `beside` them and with layers of
/// other stacks: all resident beside the others where they fit; else one-pass stacks pass through
/// slots alone, and others take what is left once the other stacks are gone. Fewer slots, down to
/// two, where the wanted ones do not fit. kOutOfMemory with what would do.
[[nodiscard]] Result<RingChoice> choose_ring(const RingRequest& request,
                                             const StreamOptions& options,
                                             std::size_t ceiling_bytes, std::size_t beside_bytes,
                                             std::size_t others_bytes);

/// Pinned host memory for records beside the `taken_bytes` that are pinned already.
[[nodiscard]] std::size_t pinned_budget_bytes(const StreamOptions& options,
                                              std::size_t taken_bytes);

/// Of a reserve, for the rounding of small pieces.
[[nodiscard]] std::size_t reserve_slack(std::size_t ceiling_bytes);

/// Device memory of one stage.
struct DeviceStagePlan {
  std::string name;
  std::int64_t layers = 0;  ///< of the stage's stack; 0: it has none
  std::int64_t resident = 0;
  std::int64_t slots = 0;
  std::size_t layer_bytes = 0;
  std::size_t kept_bytes = 0;        ///< layers of other stacks that stay meanwhile
  std::size_t activation_bytes = 0;  ///< and weights beside the layers
  std::size_t workspace_bytes = 0;   ///< scratch of single ops, side products, rounding
  std::size_t pinned_bytes = 0;      ///< host memory for records and staging

  [[nodiscard]] std::size_t layers_bytes() const {
    return static_cast<std::size_t>(resident + slots) * layer_bytes;
  }
  [[nodiscard]] std::size_t peak_bytes() const {
    return layers_bytes() + kept_bytes + activation_bytes + workspace_bytes;
  }
};

/// Device memory of a request, stage by stage, as the first request of a pipeline finds it.
struct DevicePlan {
  std::size_t ceiling_bytes = 0;
  std::vector<DeviceStagePlan> stages;

  [[nodiscard]] std::size_t peak_bytes() const;
  [[nodiscard]] std::size_t pinned_bytes() const;
};

/// kOutOfMemory names the stage that does not fit, its parts and the smallest ceiling that would.
///   side_bytes  of adapters beside the transformer's layers
[[nodiscard]] Result<DevicePlan> plan_device(const std::vector<StagePlan>& stages,
                                             std::size_t side_bytes, const StreamOptions& options,
                                             std::size_t ceiling_bytes);
/// The smallest ceiling under which every stage runs.
[[nodiscard]] std::size_t smallest_ceiling(const std::vector<StagePlan>& stages,
                                           std::size_t side_bytes);

/// The plan as lines for people, and as a JSON object.
[[nodiscard]] std::vector<std::string> device_plan_lines(const DevicePlan& plan);
[[nodiscard]] nlohmann::json device_plan_json(const DevicePlan& plan);

}  // namespace miniacc
