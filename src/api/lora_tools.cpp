#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "adapters/convert_adapter.h"
#include "api/tool_support.h"
#include "checkpoint/open_component.h"
#include "miniacc/conversion.h"

namespace miniacc {
namespace {

using nlohmann::ordered_json;

Status wrong_flag(const char* flag, const char* wanted, const std::string& got) {
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} must be {}, got '{}'", flag, wanted, got));
}

Result<ConvertAdapterOptions> convert_options(const LoraConvertRequest& request) {
  ConvertAdapterOptions options;
  if (request.to == "comfy") {
    options.to = AdapterTarget::kComfy;
  } else if (request.to == "diffusers") {
    options.to = AdapterTarget::kDiffusers;
  } else {
    MINIACC_RETURN_IF_ERROR(wrong_flag("--to", "comfy or diffusers", request.to));
  }
  if (request.force_base == "fl2va") {
    options.base = AdapterBase::kFl2va;
  } else if (request.force_base == "ref2va") {
    options.base = AdapterBase::kRef2va;
  } else if (!request.force_base.empty()) {
    MINIACC_RETURN_IF_ERROR(wrong_flag("--force-base", "fl2va or ref2va", request.force_base));
  }
  if (request.alpha == "file") {
    options.trust_alpha_tensors = true;
  } else if (!request.alpha.empty()) {
    double value = 0.0;
    const char* end = request.alpha.data() + request.alpha.size();
    const auto [stop, error] = std::from_chars(request.alpha.data(), end, value);
    if (error != std::errc() || stop != end || !std::isfinite(value) || value <= 0.0) {
      MINIACC_RETURN_IF_ERROR(wrong_flag("--alpha", "a number above 0, or file", request.alpha));
    }
    options.alpha = value;
  }
  options.compact = request.compact;
  options.compare = request.compare;
  return options;
}

ordered_json to_json(const LoraConvertRequest& request, const AdapterConversion& done) {
  return {{"input", request.input.string()},
          {"output", done.num_written > 0 ? request.output.string() : ""},
          {"to", request.to},
          {"family", done.family},
          {"base", done.base},
          {"alpha_source", done.alpha_source},
          {"sha256", done.sha256},
          {"read", done.num_read},
          {"written", done.num_written},
          {"compared_equal", done.num_compared},
          {"dropped", done.dropped},
          {"notes", done.notes},
          {"problems", done.problems}};
}

std::string to_text(const LoraConvertRequest& request, const AdapterConversion& done) {
  std::vector<std::string> lines = {
      fmt::format("{}: {} tensors, {} names, scale from {}", request.input.string(), done.num_read,
                  done.family, done.alpha_source.empty() ? "nowhere yet" : done.alpha_source)};
  for (const auto& [reason, count] : done.dropped) {
    lines.push_back(fmt::format("dropped {}: {}", count, reason));
  }
  for (const std::string& note : done.notes) {
    lines.push_back("note: " + note);
  }
  if (!request.compare.empty() && done.problems.empty()) {
    lines.push_back(
        fmt::format("{}: {} tensors are equal", request.compare.string(), done.num_compared));
  }
  if (done.num_written > 0) {
    lines.push_back(fmt::format("wrote {}: {} tensors", request.output.string(), done.num_written));
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

}  // namespace

Result<ToolReport> convert_lora(const LoraConvertRequest& request, const EventSink& events,
                                const CancelToken& cancel) {
  MINIACC_ASSIGN(ConvertAdapterOptions options, convert_options(request));
  if (!request.output.empty()) {
    MINIACC_RETURN_IF_ERROR(check_output(request.output, request.overwrite, request.input));
  }
  TensorShapes shapes;
  if (!request.model.empty()) {
    MINIACC_ASSIGN(const auto path, transformer_path(request.model));
    MINIACC_ASSIGN(shapes, read_component_shapes(path, Component::kTransformer));
    options.model = &shapes;
  }
  StageEvents stage(events, "checking " + request.input.filename().string());
  options.cancel = &cancel;
  options.progress = [&](std::int64_t done, std::int64_t total) {
    stage.progress(static_cast<double>(done), static_cast<double>(total));
  };
  MINIACC_ASSIGN(AdapterConversion done, convert_adapter(request.input, request.output, options));
  stage.finish();
  return ToolReport{to_text(request, done), dump_json(to_json(request, done)),
                    std::move(done.problems)};
}

}  // namespace miniacc
