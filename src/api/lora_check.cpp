#include "miniacc/lora_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "adapters/lora.h"
#include "api/tool_support.h"
#include "checkpoint/open_component.h"
#include "device/cpu_device.h"
#include "runtime/adapter_wishes.h"
#include "runtime/lora_verify.h"
#include "runtime/request.h"

namespace miniacc {
namespace {

Result<std::unique_ptr<ComponentWeights>> open_transformer(const std::filesystem::path& path) {
  MINIACC_ASSIGN(const std::filesystem::path file, transformer_path(path));
  return open_component(file, Component::kTransformer);
}

std::string range(double low, double high) {
  return low == high ? fmt::format("{:g}", low) : fmt::format("{:g} to {:g}", low, high);
}

nlohmann::json probe_json(const ModuleProbe& probe) {
  return {{"tensor", probe.tensor},
          {"change", probe.change},
          {"error", probe.error},
          {"bound", probe.bound},
          {"attached", probe.attached},
          {"passed", probe.passed},
          {"below_resolution", probe.below_resolution}};
}

std::string verification_json(const LoraVerification& result) {
  nlohmann::json modules = nlohmann::json::array();
  for (const ModuleProbe& probe : result.modules) {
    modules.push_back(probe_json(probe));
  }
  const nlohmann::json document = {
      {"verified", result.failures.empty()},
      {"adapter", nlohmann::json::parse(lora_reports_to_json(result.reports)).front()},
      {"modules", modules},
      {"video_difference", result.video_difference},
      {"audio_difference", result.audio_difference},
      {"largest_difference", result.largest_difference},
      {"warnings", result.warnings},
      {"failures", result.failures}};
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string verification_text(const LoraVerification& result) {
  const LoraReport& report = result.reports.front();
  std::vector<std::string> lines = {
      report.path.string(),
      fmt::format("tensors in the file: {} matched, {} unmatched, {} rejected", report.matched,
                  report.unmatched, report.rejected)};
  const auto attached = std::count_if(result.modules.begin(), result.modules.end(),
                                      [](const ModuleProbe& probe) { return probe.attached; });
  lines.push_back(fmt::format("layers: {} to change, {} change ({})", result.modules.size(),
                              attached, report.mode == "side" ? "side products" : "merged"));
  const auto worst = std::max_element(result.modules.begin(), result.modules.end(),
                                      [](const ModuleProbe& a, const ModuleProbe& b) {
                                        return a.error / a.bound < b.error / b.bound;
                                      });
  const auto [least, most] = std::minmax_element(
      result.modules.begin(), result.modules.end(),
      [](const ModuleProbe& a, const ModuleProbe& b) { return a.change < b.change; });
  if (worst != result.modules.end()) {
    lines.push_back(fmt::format("change of a layer's output: {:.2g} to {:.2g} of it", least->change,
                                most->change));
    lines.push_back(
        fmt::format("against the definition: relative error at most {:.2g} of {:.2g} "
                    "allowed ({})",
                    worst->error, worst->bound, worst->tensor));
  }
  lines.push_back(
      fmt::format("latents after one step: video differs by {:.3g}, audio by {:.3g}, "
                  "one value by {:.3g}",
                  result.video_difference, result.audio_difference, result.largest_difference));
  for (const std::string& warning : result.warnings) {
    lines.push_back("warning: " + warning);
  }
  for (const std::string& failure : result.failures) {
    lines.push_back("failure: " + failure);
  }
  lines.emplace_back(result.failures.empty() ? "verified" : "NOT verified");
  return fmt::format("{}", fmt::join(lines, "\n"));
}

}  // namespace

Result<LoraVerifyResult> verify_lora(const LoraVerifyRequest& request, ReportFormat format,
                                     const CancelToken& cancel) {
  try {
    MINIACC_ASSIGN(const Precision precision, parse_precision(request.engine.precision));
    MINIACC_ASSIGN(const auto transformer, open_transformer(request.transformer));
    GenerateRequest wishes;
    wishes.loras = {request.lora};
    MINIACC_ASSIGN(AdapterWishes adapter, apply_adapter_wishes(wishes));
    const std::string recipe = wishes.sampling.recipe.empty() ? "base" : wishes.sampling.recipe;
    MINIACC_ASSIGN(const SigmaSchedule schedule, make_schedule({.recipe = recipe}));
    CpuDevice device;
    const int threads = request.engine.num_threads > 0
                            ? request.engine.num_threads
                            : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    OpContext ctx{device, threads, &cancel};
    MINIACC_ASSIGN(const LoraVerification result,
                   verify_loras(ctx, *transformer,
                                {.loras = {request.lora},
                                 .allow_partial = request.allow_partial,
                                 .mode = request.mode,
                                 .adaln_base = request.adaln_base,
                                 .identities = std::move(adapter.identities),
                                 .num_threads = threads},
                                precision, schedule));
    return LoraVerifyResult{result.failures.empty(), format == ReportFormat::kJson
                                                         ? verification_json(result)
                                                         : verification_text(result)};
  } catch (const ErrorException& error) {  // cancelled, or out of memory
    return tl::unexpected(error.error());
  } catch (const InternalError& error) {
    return fail(ErrorCode::kInternal, fmt::format("defect in miniacc: {}", error.what()));
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "the system ran out of memory");
  }
}

Result<std::string> show_lora(const LoraRequest& request, const std::filesystem::path& transformer,
                              bool allow_partial, ReportFormat format) {
  MINIACC_ASSIGN(const auto base, open_transformer(transformer));
  MINIACC_ASSIGN(const Lora lora, Lora::open(*base, request, {.allow_partial = allow_partial}));
  const LoraReport& report = lora.report();
  if (format == ReportFormat::kJson) {
    nlohmann::json document = nlohmann::json::parse(lora_reports_to_json({report})).front();
    document["warnings"] = lora.warnings();
    return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  std::vector<std::string> lines = {
      report.path.string(),
      fmt::format("naming: {}", report.family),
      fmt::format("rank: {}", range(static_cast<double>(report.min_rank),
                                    static_cast<double>(report.max_rank))),
      fmt::format("alpha / rank: {} ({})", range(report.min_scale, report.max_scale),
                  report.alpha_source),
      fmt::format("changes: {}", report.num_modules),
      fmt::format("tensors: {} matched, {} unmatched, {} rejected", report.matched,
                  report.unmatched, report.rejected)};
  if (!report.recipe.empty()) {
    lines.push_back(fmt::format("recipe: {} ({})", report.recipe, report.recipe_source));
  }
  if (!report.half.empty()) {
    lines.push_back(fmt::format("half: {}", report.half));
  }
  if (report.head_steps > 0) {
    lines.push_back(fmt::format("output heads: {} intervals", report.head_steps));
  }
  for (const std::string& warning : lora.warnings()) {
    lines.push_back("warning: " + warning);
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

}  // namespace miniacc
