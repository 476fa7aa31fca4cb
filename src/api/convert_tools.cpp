#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "api/tool_support.h"
#include "checkpoint/convert.h"
#include "checkpoint/open_component.h"
#include "miniacc/conversion.h"

namespace miniacc {
namespace {

using nlohmann::ordered_json;

constexpr std::pair<std::string_view, Component> kComponents[] = {
    {"transformer", Component::kTransformer},
    {"text-encoder", Component::kTextEncoder},
    {"video-vae", Component::kVideoVae},
    {"audio-vae", Component::kAudioVae}};

Result<std::optional<Component>> parse_component(const std::string& name) {
  if (name.empty()) {
    return std::optional<Component>();
  }
  for (const auto& [known, component] : kComponents) {
    if (name == known) {
      return std::optional(component);
    }
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--component must be transformer, text-encoder, video-vae or audio-vae, "
                          "got '{}'",
                          name));
}

ordered_json to_json(const ConvertedComponent& part) {
  ordered_json object = {{"component", component_name(part.component)},
                         {"input", part.in.string()},
                         {"output", part.out.string()},
                         {"from", part.from},
                         {"copied", part.copied},
                         {"tensors", part.num_tensors},
                         {"bytes", part.size_bytes},
                         {"notes", part.notes}};
  if (part.prune) {
    object["curve_table"] = {{"rank", part.prune->rank},
                             {"grid", part.prune->grid},
                             {"curve_rel_resid", part.prune->curve_rel_resid},
                             {"worst_rel_resid", part.prune->worst_rel_resid},
                             {"worst_layer", part.prune->worst_layer}};
  }
  if (!part.int8_errors.empty()) {
    ordered_json layers = ordered_json::array();
    for (const Int8Error& error : part.int8_errors) {
      layers.push_back({{"name", error.name},
                        {"rows", error.rows},
                        {"columns", error.columns},
                        {"rotation_group", error.rotation_group},
                        {"weight_error", error.weight_error},
                        {"output_error", error.output_error},
                        {"int8_output_error", error.int8_output_error}});
    }
    object["int8_layers"] = std::move(layers);
  }
  return object;
}

void add_int8_lines(const std::vector<Int8Error>& errors, std::vector<std::string>& lines) {
  if (errors.empty()) {
    return;
  }
  const auto less = [](const Int8Error& a, const Int8Error& b) {
    return a.weight_error < b.weight_error;
  };
  const auto worst = std::max_element(errors.begin(), errors.end(), less);
  const auto best = std::min_element(errors.begin(), errors.end(), less);
  double output = 0.0;
  double int8_output = 0.0;
  std::int64_t unrotated = 0;
  for (const Int8Error& error : errors) {
    output = std::max(output, error.output_error);
    int8_output = std::max(int8_output, error.int8_output_error);
    unrotated += error.rotation_group == 0 ? 1 : 0;
  }
  lines.push_back(fmt::format(
      "  {} layers in int8{}, against the original: weights off by {:.3f} % to {:.3f} % ({})",
      errors.size(), unrotated > 0 ? fmt::format(" ({} not rotated)", unrotated) : "",
      100.0 * best->weight_error, 100.0 * worst->weight_error, worst->name));
  lines.push_back(fmt::format(
      "  outputs on random activations off by at most {:.3f} %, with int8 activations {:.3f} %",
      100.0 * output, 100.0 * int8_output));
}

ToolReport make_report(const std::vector<ConvertedComponent>& parts) {
  std::vector<std::string> lines;
  ordered_json components = ordered_json::array();
  for (const ConvertedComponent& part : parts) {
    lines.push_back(fmt::format("{} ({}): {} {}, {} tensors, {:.1f} MB",
                                component_name(part.component), part.from,
                                part.copied ? "copied to" : "wrote", part.out.string(),
                                part.num_tensors, static_cast<double>(part.size_bytes) / 1e6));
    if (part.prune) {
      lines.push_back(fmt::format(
          "  curve table of rank {}: the curve is off by {:.2e}, the worst layer by {:.2e} ({})",
          part.prune->rank, part.prune->curve_rel_resid, part.prune->worst_rel_resid,
          part.prune->worst_layer));
    }
    add_int8_lines(part.int8_errors, lines);
    for (const std::string& note : part.notes) {
      lines.push_back("  note: " + note);
    }
    components.push_back(to_json(part));
  }
  return {fmt::format("{}", fmt::join(lines, "\n")),
          dump_json({{"components", std::move(components)}}),
          {}};
}

Result<ToolReport> run_conversion(ConvertOptions options, bool overwrite, const EventSink& events,
                                  const CancelToken& cancel) {
  MINIACC_RETURN_IF_ERROR(check_output(options.out, overwrite, options.in));
  StageEvents stage(events, "writing " + options.out.filename().string());
  options.cancel = &cancel;
  options.num_threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  options.progress = [&](std::size_t done, std::size_t total) {
    stage.progress(static_cast<double>(done), static_cast<double>(total));
  };
  try {
    MINIACC_ASSIGN(const auto parts, convert_checkpoint(options));
    stage.finish();
    return make_report(parts);
  } catch (const ErrorException& error) {
    return tl::unexpected(error.error());
  }
}

}  // namespace

Result<ToolReport> convert_model(const ConvertRequest& request, const EventSink& events,
                                 const CancelToken& cancel) {
  ConvertOptions options;
  const auto format = parse_checkpoint_format(request.to);
  if (!format) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--to must be official, diffusers, comfy, comfy-pruned or gguf, got "
                            "'{}'",
                            request.to));
  }
  options.format = *format;
  if (!request.dtype.empty()) {
    const auto storage = parse_weight_storage(request.dtype);
    if (!storage) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--dtype must be bf16, f32, f16, fp8_scaled, int8_convrot, q8_0, "
                              "q4_0 or q4_k, got '{}'",
                              request.dtype));
    }
    options.storage = *storage;
  }
  MINIACC_ASSIGN(options.component, parse_component(request.component));
  options.in = request.input;
  options.out = request.output;
  options.rank = request.rank;
  options.max_rel_resid = request.max_rel_resid;
  return run_conversion(std::move(options), request.overwrite, events, cancel);
}

Result<ToolReport> quantize_model(const QuantizeRequest& request, const EventSink& events,
                                  const CancelToken& cancel) {
  ConvertOptions options;
  options.storage = WeightStorage::kInt8ConvRot;
  options.measure_int8 = true;
  options.rotation_group = request.rotation_group;
  MINIACC_ASSIGN(options.component, parse_component(request.component));
  options.in = request.input;
  options.out = request.output;
  // The form of the modulation stays: quantising and pruning are two decisions.
  const auto transformer = transformer_path(request.input);
  if (transformer) {
    const auto analysis = analyse_component(*transformer);
    options.format = analysis && (*analysis)->info.pruned ? CheckpointFormat::kComfyPruned
                                                          : CheckpointFormat::kComfy;
  }
  return run_conversion(std::move(options), request.overwrite, events, cancel);
}

}  // namespace miniacc
