#include "runtime/device_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/job_plan.h"

namespace miniacc {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr std::size_t kMostSlackBytes = std::size_t{64} << 20;
constexpr std::int64_t kFewestSlots = 2;

std::size_t left(std::size_t all, std::size_t taken) { return all > taken ? all - taken : 0; }

double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) / kMiB; }

/// What a stage takes beside its layers, without slack.
std::size_t beside(const StagePlan& stage, std::size_t side_bytes) {
  return stage.reserved_bytes() + (stage.name == kDenoiseStage ? side_bytes : 0);
}

}  // namespace

std::size_t pinned_budget_bytes(const StreamOptions& options, std::size_t taken_bytes) {
  constexpr std::size_t kHostHeadroomBytes = std::size_t{4} << 30;
  return options.pinned_bytes ? left(*options.pinned_bytes, taken_bytes)
                              : left(available_memory_bytes(), kHostHeadroomBytes);
}

std::size_t reserve_slack(std::size_t ceiling_bytes) {
  return std::min(kMostSlackBytes, ceiling_bytes / 64);
}

Result<RingChoice> choose_ring(const RingRequest& request, const StreamOptions& options,
                               std::size_t ceiling_bytes, std::size_t beside_bytes,
                               std::size_t others_bytes) {
  const std::size_t all_bytes = static_cast<std::size_t>(request.num_layers) * request.layer_bytes;
  const std::int64_t slots = std::min(options.num_slots, request.num_layers);
  const std::size_t slot_bytes = static_cast<std::size_t>(slots) * request.layer_bytes;
  RingChoice choice;
  std::size_t budget = left(ceiling_bytes, beside_bytes + others_bytes);
  if (budget < all_bytes && !(request.one_pass && budget >= slot_bytes)) {
    choice.others_go = others_bytes > 0;
    budget = left(ceiling_bytes, beside_bytes);
  }
  if (budget < all_bytes && request.one_pass) {
    budget = std::min(budget, slot_bytes);  // more would be copied once and be of no use again
  }
  if (options.max_places) {
    budget = std::min(budget, static_cast<std::size_t>(*options.max_places) * request.layer_bytes);
  }
  auto plan = plan_ring(request.num_layers, request.layer_bytes, slots, budget);
  for (std::int64_t fewer = slots - 1; !plan && fewer >= std::min(kFewestSlots, slots); --fewer) {
    plan = plan_ring(request.num_layers, request.layer_bytes, fewer, budget);
  }
  if (!plan) {
    return tl::unexpected(std::move(plan).error());
  }
  choice.plan = *std::move(plan);
  return choice;
}

std::size_t DevicePlan::peak_bytes() const {
  std::size_t peak = 0;
  for (const DeviceStagePlan& stage : stages) {
    peak = std::max(peak, stage.peak_bytes());
  }
  return peak;
}

std::size_t DevicePlan::pinned_bytes() const {
  std::size_t bytes = 0;
  for (const DeviceStagePlan& stage : stages) {
    bytes += stage.pinned_bytes;
  }
  return bytes;
}

std::size_t smallest_ceiling(const std::vector<StagePlan>& stages, std::size_t side_bytes) {
  std::size_t most = 0;
  for (const StagePlan& stage : stages) {
    const auto slots = static_cast<std::size_t>(std::min(kFewestSlots, stage.num_layers));
    most = std::max(most, beside(stage, side_bytes) + slots * stage.layer_bytes);
  }
  // The slack is a 64th of the ceiling, up to its own bound.
  const std::size_t with_share = most + most / 63 + 1;
  return std::min(with_share, most + kMostSlackBytes);
}

Result<DevicePlan> plan_device(const std::vector<StagePlan>& stages, std::size_t side_bytes,
                               const StreamOptions& options, std::size_t ceiling_bytes) {
  constexpr std::int64_t kNumStaging = 3;
  DevicePlan plan;
  plan.ceiling_bytes = ceiling_bytes;
  const std::size_t slack = reserve_slack(ceiling_bytes);
  std::map<std::string, std::size_t> held;  // by stage: layers that stay on the device
  const std::size_t pinned_budget = pinned_budget_bytes(options, 0);
  std::size_t pinned = 0;
  for (const StagePlan& stage : stages) {
    DeviceStagePlan& planned = plan.stages.emplace_back();
    planned.name = stage.name;
    planned.activation_bytes = stage.reserved_bytes() - stage.workspace_bytes;
    planned.workspace_bytes = beside(stage, side_bytes) - planned.activation_bytes + slack;
    std::size_t others = 0;
    for (const auto& [name, bytes] : held) {
      others += bytes;
    }
    const std::size_t needed = planned.activation_bytes + planned.workspace_bytes;
    if (stage.num_layers == 0) {
      if (needed + others > ceiling_bytes) {
        held.clear();
        others = 0;
      }
      if (needed > ceiling_bytes) {
        return fail(ErrorCode::kOutOfMemory,
                    fmt::format("{} needs {:.0f} MiB of device memory, and {:.0f} MiB may be held",
                                stage.name, mebibytes(needed), mebibytes(ceiling_bytes)));
      }
      planned.kept_bytes = others;
      continue;
    }
    const auto choice = choose_ring({stage.num_layers, stage.layer_bytes, stage.name == kTextStage},
                                    options, ceiling_bytes, needed, others);
    if (!choice) {
      return fail(
          ErrorCode::kOutOfMemory,
          fmt::format(
              "{} needs at least {:.0f} MiB of device memory ({} slots of {:.0f} "
              "MiB for layers, {:.0f} MiB activations, {:.0f} MiB workspace), and "
              "{:.0f} MiB may be held",
              stage.name,
              mebibytes(needed + static_cast<std::size_t>(kFewestSlots) * stage.layer_bytes),
              kFewestSlots, mebibytes(stage.layer_bytes), mebibytes(planned.activation_bytes),
              mebibytes(planned.workspace_bytes), mebibytes(ceiling_bytes)));
    }
    if (choice->others_go) {
      held.clear();
      others = 0;
    }
    planned.kept_bytes = others;
    planned.layers = stage.num_layers;
    planned.layer_bytes = stage.layer_bytes;
    planned.resident = choice->plan.num_resident();
    planned.slots = choice->plan.num_slots;
    held[stage.name] = choice->plan.device_bytes();
    const auto all = static_cast<std::size_t>(stage.num_layers) * stage.layer_bytes;
    const auto staging = static_cast<std::size_t>(kNumStaging) * stage.layer_bytes;
    const std::size_t budget = left(pinned_budget, pinned);
    if (choice->plan.num_streamed() == 0) {
      planned.pinned_bytes = staging;  // read once
    } else if (budget >= all) {
      planned.pinned_bytes = all;
    } else {
      planned.pinned_bytes =
          left(budget, staging) / stage.layer_bytes * stage.layer_bytes + staging;
    }
    pinned += planned.pinned_bytes;
  }
  return plan;
}

std::vector<std::string> device_plan_lines(const DevicePlan& plan) {
  std::vector<std::string> lines;
  lines.push_back(
      fmt::format("device memory, at most {:.0f} MiB (MiB):", mebibytes(plan.ceiling_bytes)));
  lines.push_back(fmt::format("  {:<20} {:>9} {:>6} {:>9} {:>9} {:>12} {:>10} {:>9} {:>12}",
                              "stage", "resident", "slots", "layers", "others", "activations",
                              "workspace", "peak", "pinned host"));
  for (const DeviceStagePlan& stage : plan.stages) {
    lines.push_back(fmt::format(
        "  {:<20} {:>9} {:>6} {:>9.0f} {:>9.0f} {:>12.0f} {:>10.0f} {:>9.0f} {:>12.0f}", stage.name,
        stage.layers > 0 ? fmt::format("{}/{}", stage.resident, stage.layers) : std::string("-"),
        stage.slots, mebibytes(stage.layers_bytes()), mebibytes(stage.kept_bytes),
        mebibytes(stage.activation_bytes), mebibytes(stage.workspace_bytes),
        mebibytes(stage.peak_bytes()), mebibytes(stage.pinned_bytes)));
  }
  lines.push_back(fmt::format("  peak {:.0f} MiB, pinned host memory {:.0f} MiB",
                              mebibytes(plan.peak_bytes()), mebibytes(plan.pinned_bytes())));
  return lines;
}

nlohmann::json device_plan_json(const DevicePlan& plan) {
  nlohmann::json stages = nlohmann::json::array();
  for (const DeviceStagePlan& stage : plan.stages) {
    stages.push_back({{"name", stage.name},
                      {"layers", stage.layers},
                      {"resident_layers", stage.resident},
                      {"slots", stage.slots},
                      {"layer_bytes", stage.layer_bytes},
                      {"layers_bytes", stage.layers_bytes()},
                      {"other_layers_bytes", stage.kept_bytes},
                      {"activation_bytes", stage.activation_bytes},
                      {"workspace_bytes", stage.workspace_bytes},
                      {"peak_bytes", stage.peak_bytes()},
                      {"pinned_bytes", stage.pinned_bytes}});
  }
  return {{"ceiling_bytes", plan.ceiling_bytes},
          {"peak_bytes", plan.peak_bytes()},
          {"pinned_bytes", plan.pinned_bytes()},
          {"stages", stages}};
}

}  // namespace miniacc
