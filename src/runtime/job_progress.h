#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "miniacc/miniacc.h"

namespace miniacc {

/// One stage as the job foresees it. `cost` is its share of the work in any one unit (FLOPs here).
struct PlannedStage {
  std::string name;
  double cost = 1.0;
};

/// Turns what stages report into events on one scale that covers the whole job and never falls,
/// with the time left, and keeps the report of each stage. Not thread-safe.
class JobProgress {
 public:
  JobProgress(std::vector<PlannedStage> plan, EventSink sink);

  /// Replaces a stage's cost once it is known; before that stage begins.
  void set_cost(const std::string& name, double cost);

  /// Begins the next planned stage; `total` is its number of units (steps, windows, ...).
  void begin(const std::string& name, std::int64_t total);
  /// `fraction` of the current stage is done, `done` whole units of it.
  void update(std::int64_t done, double fraction);
  void end();

  /// Counts time spent inside one finished stage as another's: frames are encoded while the next
  /// are decoded, and the report keeps the two apart.
  void move_seconds(const std::string& from, const std::string& to, double seconds);

  void note(const std::string& message);
  void warning(const std::string& message);

  [[nodiscard]] const std::vector<StageReport>& stages() const { return stages_; }
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
  [[nodiscard]] double elapsed_seconds() const;

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] StageReport* find_report(const std::string& name);
  void emit(Event::Kind kind, std::int64_t done, double fraction);

  std::vector<PlannedStage> plan_;
  std::size_t current_ = 0;
  std::int64_t current_total_ = 0;
  double overall_ = 0.0;
  Clock::time_point job_begin_ = Clock::now();
  Clock::time_point stage_begin_ = Clock::now();
  EventSink sink_;
  std::vector<StageReport> stages_;
  std::vector<std::string> warnings_;
};

}  // namespace miniacc
