#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace miniacc {

/// What streaming cost so far.
struct StreamCounters {
  std::size_t bytes_copied = 0;  ///< host to device, residents included
  std::int64_t copies = 0;
  std::int64_t records_read = 0;  ///< layers read from their file or made
  double stall_ms = 0.0;          ///< time the compute stream waited for copies
  double host_wait_ms = 0.0;      ///< time the issuing thread waited for the reader
};

/// How the layers of one component reached the device, and what that cost since the pipeline was
/// opened.
struct StreamReport {
  std::string component;  ///< "text encoder", "transformer", "video VAE"
  std::int64_t layers = 0;
  std::int64_t resident = 0;  ///< of them
  std::int64_t slots = 0;     ///< that the others pass through
  std::int64_t pinned = 0;    ///< layers with a pinned record of their own
  std::size_t layer_bytes = 0;
  std::size_t device_bytes = 0;  ///< of residents and slots
  std::size_t pinned_bytes = 0;  ///< of records and staging
  StreamCounters counters;
};

/// One line for people.
[[nodiscard]] std::string stream_report_text(const StreamReport& report);
/// The same as a JSON object.
[[nodiscard]] nlohmann::json stream_report_json(const StreamReport& report);

}  // namespace miniacc
