#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "miniacc/miniacc.h"

namespace miniacc {

enum class ProgressStyle {
  kAuto,   ///< a bar on a terminal, lines elsewhere
  kLines,  ///< one line when a stage ends, and at most one every ten seconds
  kJson,   ///< every event as one JSON object a line, on standard output
  kQuiet,  ///< warnings only
};

/// Shows events to a person or a program.
class ProgressDisplay {
 public:
  explicit ProgressDisplay(ProgressStyle style);
  ~ProgressDisplay();
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  void show(const Event& event);
  /// Ends an open bar line, before other output.
  void finish();

 private:
  class Log;
  using Clock = std::chrono::steady_clock;

  void show_bar(const Event& event);
  void show_line(const Event& event);

  ProgressStyle style_;
  bool bar_open_ = false;
  Clock::time_point last_shown_{};
  std::unique_ptr<Log> log_;
};

/// One JSON object on one line.
std::string event_to_json(const Event& event);

}  // namespace miniacc
