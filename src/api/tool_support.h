#pragma once

#include <chrono>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "miniacc/error.h"
#include "miniacc/miniacc.h"

namespace miniacc {

/// One stage of a tool as events: begin, progress in units of its own, end.
class StageEvents {
 public:
  StageEvents(const EventSink& sink, std::string stage);
  void progress(double done, double total);
  void warn(const std::string& message) const;
  void finish();

 private:
  void send(Event::Kind kind, double fraction);

  const EventSink& sink_;
  std::string stage_;
  std::chrono::steady_clock::time_point begin_;
  double fraction_ = 0.0;
};

/// kInvalidArgument when `output` exists and may not be replaced, kNotFound when its folder does
/// not exist. An input that is the output is refused whatever `overwrite` says.
[[nodiscard]] Status check_output(const std::filesystem::path& output, bool overwrite,
                                  const std::filesystem::path& input);

/// The transformer below a model folder, or the path itself.
[[nodiscard]] Result<std::filesystem::path> transformer_path(const std::filesystem::path& path);

/// On one line, with bytes that are not UTF-8 replaced.
[[nodiscard]] std::string dump_json(const nlohmann::ordered_json& document);

}  // namespace miniacc
