#pragma once

#include <functional>
#include <string>

namespace miniacc {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Where messages go is the application's choice; a default-constructed Logger drops them.
/// Warnings are things the user must see (a fallback, a rounded size), never debug noise.
class Logger {
 public:
  using Sink = std::function<void(LogLevel, const std::string& message)>;

  Logger() = default;
  explicit Logger(Sink sink);

  void debug(const std::string& message) const;
  void info(const std::string& message) const;
  void warning(const std::string& message) const;
  void error(const std::string& message) const;

 private:
  void write(LogLevel level, const std::string& message) const;
  Sink sink_;
};

}  // namespace miniacc
