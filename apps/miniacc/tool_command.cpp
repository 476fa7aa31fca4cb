#include "tool_command.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "commands.h"
#include "progress_display.h"

namespace miniacc {

void add_tool_flags(CLI::App& command, ToolFlags& flags, const std::string& names) {
  command.add_option(names, flags.json,
                     "Write the report as a JSON object into this file; - prints it");
  command.add_flag("-q,--quiet", flags.quiet, "No progress");
}

namespace {

/// A report takes no other file's place, whatever --overwrite says about the output.
Status check_report(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: exists already, the report needs a name of its own", path));
  }
  return {};
}

/// Under a temporary name first.
Status write_report(const std::string& path, const std::string& json) {
  MINIACC_RETURN_IF_ERROR(check_report(path));  // the output may have this name
  const std::string partial = path + ".partial";
  std::ofstream stream(partial, std::ios::binary | std::ios::trunc);
  stream << json << '\n';
  stream.close();
  std::error_code error;
  if (stream) {
    std::filesystem::rename(partial, path, error);
  }
  if (!stream || error) {
    std::filesystem::remove(partial, error);
    return fail(ErrorCode::kIo, path + ": cannot write the report");
  }
  return {};
}

}  // namespace

int run_tool(const ToolFlags& flags,
             const std::function<Result<ToolReport>(const EventSink& events)>& tool) {
  const bool prints_json = flags.json == "-";
  const bool writes_json = !flags.json.empty() && !prints_json;
  const ReportFormat format = report_format(prints_json);
  if (writes_json) {
    if (const Status free = check_report(flags.json); !free) {
      return report_error(free.error(), format);
    }
  }
  ProgressDisplay display(flags.quiet || prints_json ? ProgressStyle::kQuiet
                                                     : ProgressStyle::kAuto);
  const auto report = tool([&](const Event& event) { display.show(event); });
  display.finish();
  if (!report) {
    return report_error(report.error(), format);
  }
  if (writes_json) {
    if (const Status written = write_report(flags.json, report->json); !written) {
      return report_error(written.error(), format);
    }
  }
  fmt::print("{}\n", prints_json ? report->json : report->text);
  for (const std::string& problem : report->problems) {
    fmt::print(stderr, "miniacc: problem: {}\n", printable(problem));
  }
  if (!report->problems.empty()) {
    fmt::print(stderr, "miniacc: error: {} problem{}, nothing was written\n",
               report->problems.size(), report->problems.size() == 1 ? "" : "s");
    return 1;
  }
  return 0;
}

}  // namespace miniacc
