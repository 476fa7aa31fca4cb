#include "api/tool_support.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "checkpoint/find_components.h"

namespace miniacc {

namespace fs = std::filesystem;

StageEvents::StageEvents(const EventSink& sink, std::string stage)
    : sink_(sink), stage_(std::move(stage)), begin_(std::chrono::steady_clock::now()) {
  send(Event::Kind::kStageBegin, 0.0);
}

void StageEvents::progress(double done, double total) {
  const double fraction = total > 0.0 ? std::clamp(done / total, 0.0, 1.0) : 0.0;
  fraction_ = std::max(fraction_, fraction);  // never falls
  send(Event::Kind::kProgress, fraction_);
}

void StageEvents::warn(const std::string& message) const {
  if (sink_) {
    Event event;
    event.kind = Event::Kind::kWarning;
    event.message = message;
    event.overall_fraction = fraction_;
    sink_(event);
  }
}

void StageEvents::finish() { send(Event::Kind::kStageEnd, 1.0); }

void StageEvents::send(Event::Kind kind, double fraction) {
  if (!sink_) {
    return;
  }
  Event event;
  event.kind = kind;
  event.stage = stage_;
  event.overall_fraction = fraction;
  event.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  if (fraction > 0.0 && fraction < 1.0) {
    event.eta_seconds = event.seconds * (1.0 - fraction) / fraction;
  }
  sink_(event);
}

Status check_output(const fs::path& output, bool overwrite, const fs::path& input) {
  std::error_code error;
  const fs::path parent = output.has_parent_path() ? output.parent_path() : fs::path(".");
  if (!fs::is_directory(parent, error)) {
    return fail(ErrorCode::kNotFound, fmt::format("{}: there is no folder {} to write in",
                                                  output.string(), parent.string()));
  }
  if (!fs::exists(output, error)) {
    return {};
  }
  if (fs::equivalent(output, input, error)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: is the input; write to another name", output.string()));
  }
  if (!overwrite) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: exists already; --overwrite replaces it", output.string()));
  }
  if (!fs::is_regular_file(output, error)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: is no file, so it is not replaced", output.string()));
  }
  return {};
}

Result<fs::path> transformer_path(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path / "transformer", ignored)) {
    return path / "transformer";
  }
  if (fs::is_directory(path / "FL2VA" / "transformer", ignored)) {
    return path / "FL2VA" / "transformer";
  }
  if (fs::is_directory(path, ignored) && !fs::exists(path / "config.json", ignored)) {
    MINIACC_ASSIGN(const ModelFiles files, find_components(path));
    return files.transformer;
  }
  return path;
}

std::string dump_json(const nlohmann::ordered_json& document) {
  return document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace miniacc
