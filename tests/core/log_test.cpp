#include "core/log.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace miniacc {
namespace {

TEST(Logger, PassesLevelAndMessageToItsSink) {
  std::vector<std::pair<LogLevel, std::string>> lines;
  const Logger logger(
      [&](LogLevel level, const std::string& message) { lines.emplace_back(level, message); });
  logger.debug("a");
  logger.info("b");
  logger.warning("c");
  logger.error("d");
  const std::vector<std::pair<LogLevel, std::string>> expected = {{LogLevel::kDebug, "a"},
                                                                  {LogLevel::kInfo, "b"},
                                                                  {LogLevel::kWarning, "c"},
                                                                  {LogLevel::kError, "d"}};
  EXPECT_EQ(lines, expected);
}

TEST(Logger, WithoutASinkDropsEverything) { EXPECT_NO_THROW(Logger().error("dropped")); }

}  // namespace
}  // namespace miniacc
