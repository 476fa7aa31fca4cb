#include "runtime/job_progress.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "runtime/process_memory.h"

namespace miniacc {
namespace {

// Below this much of the job an extrapolated time is noise, so none is given.
constexpr double kMinFractionForEta = 0.02;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

JobProgress::JobProgress(std::vector<PlannedStage> plan, EventSink sink)
    : plan_(std::move(plan)), sink_(std::move(sink)) {}

void JobProgress::set_cost(const std::string& name, double cost) {
  for (PlannedStage& stage : plan_) {
    if (stage.name == name) {
      stage.cost = cost;
      return;
    }
  }
  MINIACC_REQUIRE(false, "job progress: a stage that was not planned");
}

void JobProgress::begin(const std::string& name, std::int64_t total) {
  const auto found =
      std::find_if(plan_.begin() + static_cast<std::ptrdiff_t>(current_), plan_.end(),
                   [&](const PlannedStage& stage) { return stage.name == name; });
  MINIACC_REQUIRE(found != plan_.end(), "job progress: a stage that was not planned");
  current_ = static_cast<std::size_t>(found - plan_.begin());
  current_total_ = total;
  stage_begin_ = Clock::now();
  emit(Event::Kind::kStageBegin, 0, 0.0);
}

void JobProgress::update(std::int64_t done, double fraction) {
  emit(Event::Kind::kProgress, done, std::clamp(fraction, 0.0, 1.0));
}

void JobProgress::end() {
  emit(Event::Kind::kStageEnd, current_total_, 1.0);
  stages_.push_back({plan_[current_].name, seconds_since(stage_begin_), peak_resident_bytes()});
}

StageReport* JobProgress::find_report(const std::string& name) {
  const auto found = std::find_if(stages_.begin(), stages_.end(),
                                  [&](const StageReport& report) { return report.name == name; });
  return found == stages_.end() ? nullptr : &*found;
}

void JobProgress::move_seconds(const std::string& from, const std::string& to, double seconds) {
  StageReport* source = find_report(from);
  StageReport* target = find_report(to);
  MINIACC_REQUIRE(source != nullptr && target != nullptr, "job progress: stage not finished");
  source->seconds -= seconds;
  target->seconds += seconds;
}

void JobProgress::note(const std::string& message) {
  if (sink_) {
    Event event;
    event.kind = Event::Kind::kNote;
    event.overall_fraction = overall_;
    event.message = message;
    sink_(event);
  }
}

void JobProgress::warning(const std::string& message) {
  warnings_.push_back(message);
  if (sink_) {
    Event event;
    event.kind = Event::Kind::kWarning;
    event.overall_fraction = overall_;
    event.message = message;
    sink_(event);
  }
}

double JobProgress::elapsed_seconds() const { return seconds_since(job_begin_); }

void JobProgress::emit(Event::Kind kind, std::int64_t done, double fraction) {
  double reached = fraction * plan_[current_].cost;
  double total = 0.0;
  for (std::size_t i = 0; i < plan_.size(); ++i) {
    reached += i < current_ ? plan_[i].cost : 0.0;
    total += plan_[i].cost;
  }
  overall_ = std::max(overall_, total > 0.0 ? reached / total : 0.0);
  if (!sink_) {
    return;
  }
  Event event;
  event.kind = kind;
  event.stage = plan_[current_].name;
  event.done = done;
  event.total = current_total_;
  event.seconds = seconds_since(stage_begin_);
  event.overall_fraction = overall_;
  if (overall_ > kMinFractionForEta) {
    event.eta_seconds = elapsed_seconds() * (1.0 - overall_) / overall_;
  }
  sink_(event);
}

}  // namespace miniacc
