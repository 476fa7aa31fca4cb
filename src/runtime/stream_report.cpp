#include "runtime/stream_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace miniacc {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

}  // namespace

std::string stream_report_text(const StreamReport& report) {
  const StreamCounters& counters = report.counters;
  return fmt::format(
      "{}: {} of {} layers of {:.1f} MiB resident, {} slots, {} pinned ({:.2f} GiB); {:.2f} GiB in "
      "{} copies, {:.1f} ms not hidden, {:.1f} ms waited for reading",
      report.component, report.resident, report.layers,
      static_cast<double>(report.layer_bytes) * 1024.0 / kGiB, report.slots, report.pinned,
      static_cast<double>(report.pinned_bytes) / kGiB,
      static_cast<double>(counters.bytes_copied) / kGiB, counters.copies, counters.stall_ms,
      counters.host_wait_ms);
}

nlohmann::json stream_report_json(const StreamReport& report) {
  const StreamCounters& counters = report.counters;
  return {{"component", report.component},         {"layers", report.layers},
          {"resident_layers", report.resident},    {"slots", report.slots},
          {"pinned_layers", report.pinned},        {"layer_bytes", report.layer_bytes},
          {"device_bytes", report.device_bytes},   {"pinned_bytes", report.pinned_bytes},
          {"bytes_copied", counters.bytes_copied}, {"copies", counters.copies},
          {"layers_read", counters.records_read},  {"stall_ms", counters.stall_ms},
          {"host_wait_ms", counters.host_wait_ms}};
}

}  // namespace miniacc
