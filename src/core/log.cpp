#include "core/log.h"

#include <utility>

namespace miniacc {

Logger::Logger(Sink sink) : sink_(std::move(sink)) {}

void Logger::debug(const std::string& message) const { write(LogLevel::kDebug, message); }
void Logger::info(const std::string& message) const { write(LogLevel::kInfo, message); }
void Logger::warning(const std::string& message) const { write(LogLevel::kWarning, message); }
void Logger::error(const std::string& message) const { write(LogLevel::kError, message); }

void Logger::write(LogLevel level, const std::string& message) const {
  if (sink_) {
    sink_(level, message);
  }
}

}  // namespace miniacc
