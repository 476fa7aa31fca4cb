#include "progress_display.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "commands.h"

namespace miniacc {
namespace {

constexpr int kBarWidth = 24;
constexpr std::chrono::milliseconds kBarInterval{100};
constexpr std::chrono::seconds kLineInterval{10};

std::string duration(double seconds) {
  if (seconds < 0.0) {
    return "--:--";
  }
  const auto whole = static_cast<std::int64_t>(std::lround(seconds));
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{:02}:{:02}", whole / 60, whole % 60);
}

/// "3/4, 1.25 s/step" once a unit is finished.
std::string units(const Event& event) {
  if (event.total <= 1) {
    return {};
  }
  std::string text = fmt::format(" {}/{}", event.done, event.total);
  if (event.done > 0) {
    text += fmt::format(", {:.2f} s/step", event.seconds / static_cast<double>(event.done));
  }
  return text;
}

const char* kind_name(Event::Kind kind) {
  switch (kind) {
    case Event::Kind::kStageBegin:
      return "stage_begin";
    case Event::Kind::kProgress:
      return "progress";
    case Event::Kind::kStageEnd:
      return "stage_end";
    case Event::Kind::kNote:
      return "note";
    case Event::Kind::kWarning:
      return "warning";
  }
  return "note";
}

}  // namespace

/// Lines for log files: time stamp, level, text.
class ProgressDisplay::Log {
 public:
  Log() : logger_("miniacc", std::make_shared<spdlog::sinks::stderr_sink_st>()) {
    logger_.set_pattern("%Y-%m-%d %H:%M:%S %l: %v");
    logger_.flush_on(spdlog::level::info);
  }
  spdlog::logger& logger() { return logger_; }

 private:
  spdlog::logger logger_;
};

std::string event_to_json(const Event& event) {
  nlohmann::json object = {{"event", kind_name(event.kind)}, {"overall", event.overall_fraction}};
  if (!event.stage.empty()) {
    object["stage"] = event.stage;
    object["done"] = event.done;
    object["total"] = event.total;
    object["seconds"] = event.seconds;
  }
  if (event.eta_seconds >= 0.0) {
    object["eta_seconds"] = event.eta_seconds;
  }
  if (!event.message.empty()) {
    object["message"] = event.message;
  }
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

ProgressDisplay::ProgressDisplay(ProgressStyle style)
    : style_(style), log_(std::make_unique<Log>()) {
  if (style_ == ProgressStyle::kAuto && isatty(STDERR_FILENO) == 0) {
    style_ = ProgressStyle::kLines;
  }
}

ProgressDisplay::~ProgressDisplay() { finish(); }

void ProgressDisplay::finish() {
  if (bar_open_) {
    fmt::print(stderr, "\n");
    bar_open_ = false;
  }
}

void ProgressDisplay::show(const Event& event) {
  if (style_ == ProgressStyle::kJson) {
    fmt::print("{}\n", event_to_json(event));
    std::fflush(stdout);
    return;
  }
  if (event.kind == Event::Kind::kWarning || event.kind == Event::Kind::kNote) {
    finish();
    if (event.kind == Event::Kind::kWarning) {
      log_->logger().warn(printable(event.message));
    } else if (style_ != ProgressStyle::kQuiet) {
      log_->logger().info(printable(event.message));
    }
    return;
  }
  if (style_ == ProgressStyle::kAuto) {
    show_bar(event);
  } else if (style_ == ProgressStyle::kLines) {
    show_line(event);
  }
}

void ProgressDisplay::show_bar(const Event& event) {
  const auto now = Clock::now();
  const bool ended = event.kind == Event::Kind::kStageEnd;
  if (!ended && bar_open_ && now - last_shown_ < kBarInterval) {
    return;
  }
  last_shown_ = now;
  const auto filled = static_cast<std::size_t>(event.overall_fraction * kBarWidth);
  const std::string bar = std::string(filled, '#') + std::string(kBarWidth - filled, '.');
  // \x1b[K clears what a longer line left behind.
  fmt::print(stderr, "\r[{}] {:3.0f}% {}{}  ETA {}\x1b[K", bar, event.overall_fraction * 100.0,
             event.stage, units(event), duration(event.eta_seconds));
  bar_open_ = true;
  if (ended) {
    fmt::print(stderr, "\r[{}] {:3.0f}% {}  {:.2f} s\x1b[K\n", bar, event.overall_fraction * 100.0,
               event.stage, event.seconds);
    bar_open_ = false;
  }
}

void ProgressDisplay::show_line(const Event& event) {
  const auto now = Clock::now();
  if (event.kind == Event::Kind::kStageEnd) {
    log_->logger().info("{}: done in {:.2f} s ({:.0f} % of the job)", event.stage, event.seconds,
                        event.overall_fraction * 100.0);
    last_shown_ = now;
  } else if (now - last_shown_ >= kLineInterval) {
    log_->logger().info("{}{} ({:.0f} % of the job, {} left)", event.stage, units(event),
                        event.overall_fraction * 100.0, duration(event.eta_seconds));
    last_shown_ = now;
  }
}

}  // namespace miniacc
