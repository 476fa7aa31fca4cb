#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "adapters/adaln_patch.h"
#include "api/tool_support.h"
#include "checkpoint/adaln_rebase.h"
#include "checkpoint/open_component.h"
#include "device/cpu_device.h"
#include "miniacc/conversion.h"

namespace miniacc {
namespace {

using nlohmann::ordered_json;

Result<std::unique_ptr<ComponentWeights>> open_transformer(const std::filesystem::path& path) {
  MINIACC_ASSIGN(const auto found, transformer_path(path));
  return open_component(found, Component::kTransformer);
}

OpContext context(CpuDevice& device, const CancelToken& cancel) {
  return {device, static_cast<int>(std::max(1U, std::thread::hardware_concurrency())), &cancel};
}

Status check_limit(double limit) {
  return std::isfinite(limit) && limit >= 0.0
             ? Status()
             : fail(ErrorCode::kInvalidArgument,
                    fmt::format("--max-rel-resid must be a number from 0, got {}", limit));
}

}  // namespace

Result<ToolReport> rebase_adaln(const AdalnRebaseRequest& request, const EventSink& events,
                                const CancelToken& cancel) {
  MINIACC_RETURN_IF_ERROR(check_limit(request.max_rel_resid));
  MINIACC_RETURN_IF_ERROR(check_output(request.output, request.overwrite, request.full));
  MINIACC_RETURN_IF_ERROR(check_output(request.output, request.overwrite, request.pruned));
  MINIACC_ASSIGN(const auto full, open_transformer(request.full));
  MINIACC_ASSIGN(const auto pruned, open_transformer(request.pruned));
  StageEvents stage(events, "fitting AdaLN");
  CpuDevice device;
  OpContext ctx = context(device, cancel);
  try {
    MINIACC_ASSIGN(const AdalnRebase fit, rebase_adaln(*full, *pruned, ctx));
    const AdalnChange& worst = *fit.worst();
    const double worst_rel = worst.sums.relative();
    ToolReport report;
    ordered_json layers = ordered_json::object();
    for (const AdalnChange& layer : fit.layers) {
      layers[layer.layer] = {{"delta_rms", layer.sums.wanted_rms()},
                             {"resid_max_abs", layer.sums.max_abs},
                             {"rel_resid", layer.sums.relative()}};
    }
    if (!(worst_rel <= request.max_rel_resid)) {
      report.problems.push_back(
          fmt::format("{}: the change fits the basis of the table to {:.2e} only, --max-rel-resid "
                      "is {:.2e}",
                      worst.layer, worst_rel, request.max_rel_resid));
    } else {
      std::vector<DensePatch> patches;
      for (const AdalnChange& layer : fit.layers) {
        patches.push_back({layer.layer, layer.weight, layer.bias});
      }
      std::map<std::string, std::string> metadata = {
          {"made_by", "miniacc adaln rebase"},
          {"source", fmt::format("AdaLN of {} in the basis of {}", request.full.string(),
                                 request.pruned.string())},
          {"worst_rel_resid", fmt::format("{:.3e}", worst_rel)}};
      if (!request.merge_into.empty()) {
        metadata["merged_into"] = request.merge_into.filename().string();
      }
      MINIACC_RETURN_IF_ERROR(
          write_dense_patch(request.output, patches, request.merge_into, metadata));
    }
    report.text = fmt::format(
        "{} layers, table of rank {}: the curve is off by {:.2e}, the worst layer by {:.2e} ({})",
        fit.layers.size(), fit.rank, fit.curve_rel_resid, worst_rel, worst.layer);
    if (report.problems.empty()) {
      report.text += fmt::format("\nwrote {}: {} tensors of AdaLN", request.output.string(),
                                 2 * fit.layers.size());
    }
    report.json = dump_json({{"curve_rel_resid", fit.curve_rel_resid},
                             {"worst_rel_resid", worst_rel},
                             {"worst_layer", worst.layer},
                             {"rank", fit.rank},
                             {"layers", std::move(layers)},
                             {"problems", report.problems}});
    stage.finish();
    return report;
  } catch (const ErrorException& error) {
    return tl::unexpected(error.error());
  }
}

Result<ToolReport> lift_adaln(const AdalnLiftRequest& request, const EventSink& events,
                              const CancelToken& cancel) {
  MINIACC_RETURN_IF_ERROR(check_limit(request.max_rel_resid));
  MINIACC_RETURN_IF_ERROR(check_output(request.output, request.overwrite, request.input));
  MINIACC_ASSIGN(const auto full, open_transformer(request.full));
  MINIACC_ASSIGN(const auto pruned, open_transformer(request.pruned));
  StageEvents stage(events, "lifting " + request.input.filename().string());
  CpuDevice device;
  OpContext ctx = context(device, cancel);
  try {
    MINIACC_ASSIGN(const CurveLift lift, fit_lift(*full, *pruned, ctx));
    ToolReport report;
    report.text = fmt::format("table of rank {} from {} directions of width {}{}: off by {:.2e}",
                              lift.rank, lift.num_directions, lift.width,
                              lift.c.empty() ? "" : " and a constant", lift.rel_resid);
    LiftReport done;
    if (!(lift.rel_resid <= request.max_rel_resid)) {
      report.problems.push_back(fmt::format(
          "the table is no function of the full width: off by {:.2e}, --max-rel-resid is {:.2e}",
          lift.rel_resid, request.max_rel_resid));
    } else {
      MINIACC_ASSIGN(done, lift_adapter(request.input, request.output,
                                        {lift.q, lift.c, lift.rank, lift.width}));
      report.text += fmt::format("\nwrote {}: {} AdaLN changes lifted, {} other tensors kept",
                                 request.output.string(), done.num_lifted, done.num_kept);
    }
    report.json = dump_json({{"rel_resid", lift.rel_resid},
                             {"rank", lift.rank},
                             {"width", lift.width},
                             {"directions", lift.num_directions},
                             {"constant", !lift.c.empty()},
                             {"lifted", done.num_lifted},
                             {"kept", done.num_kept},
                             {"problems", report.problems}});
    stage.finish();
    return report;
  } catch (const ErrorException& error) {
    return tl::unexpected(error.error());
  }
}

}  // namespace miniacc
