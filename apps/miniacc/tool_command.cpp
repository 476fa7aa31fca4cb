#include "tool_command.h"

#include <fmt/format.h>

#include <fstream>

#include "commands.h"
#include "progress_display.h"

namespace miniacc {

void add_tool_flags(CLI::App& command, ToolFlags& flags, const std::string& names) {
  command.add_option(names, flags.json,
                     "Write the report as a JSON object into this file; - prints it");
  command.add_flag("-q,--quiet", flags.quiet, "No progress");
}

int run_tool(const ToolFlags& flags,
             const std::function<Result<ToolReport>(const EventSink& events)>& tool) {
  const bool prints_json = flags.json == "-";
  const ReportFormat format = report_format(prints_json);
  ProgressDisplay display(flags.quiet || prints_json ? ProgressStyle::kQuiet
                                                     : ProgressStyle::kAuto);
  const auto report = tool([&](const Event& event) { display.show(event); });
  display.finish();
  if (!report) {
    return report_error(report.error(), format);
  }
  if (!flags.json.empty() && !prints_json) {
    std::ofstream stream(flags.json, std::ios::binary | std::ios::trunc);
    stream << report->json << '\n';
    stream.close();
    if (!stream) {
      return report_error({ErrorCode::kIo, flags.json + ": cannot write the report"}, format);
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
