#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "miniacc/conversion.h"

namespace miniacc {

/// The flags that every tool of conversion.h has.
struct ToolFlags {
  std::string json;  ///< file to write the report into; "-": standard output
  bool quiet = false;
};
/// `names`: of the option that takes the report's file.
void add_tool_flags(CLI::App& command, ToolFlags& flags, const std::string& names = "--json");

/// Runs a tool with a progress display and prints its report. Exit code: 0 done, 1 when the report
/// has problems (each is printed as a line on standard error) or on failure, 2 for wrong input.
int run_tool(const ToolFlags& flags,
             const std::function<Result<ToolReport>(const EventSink& events)>& tool);

}  // namespace miniacc
