#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace miniacc::testing {

/// How a child process is run.
struct ProcessOptions {
  std::filesystem::path folder;  ///< working folder; empty: the test's own
  std::string input;             ///< standard input, at most 32 KiB
  double timeout_s = 120.0;      ///< then it is killed, and timed_out is set
  /// Sent once when `signal_when` has appeared on standard output or standard error; 0: never.
  int signal = 0;
  std::string signal_when;
  std::optional<std::uint64_t> max_file_bytes;  ///< RLIMIT_FSIZE, stands for a full disk
  /// Takes root's right to write anywhere away, so that permissions mean something to root too.
  bool obey_permissions = false;
};

struct ProcessResult {
  int exit_code = -1;  ///< -1 when a signal ended it
  int end_signal = 0;
  bool timed_out = false;
  bool signalled = false;              ///< `signal` was sent
  double seconds_after_signal = -1.0;  ///< until it had ended
  std::string out;
  std::string err;
};

/// Runs a program, found through PATH, and waits for it. Throws std::system_error when the system
/// cannot start a process at all; a program that cannot be executed exits with 127.
ProcessResult run_process(const std::vector<std::string>& command,
                          const ProcessOptions& options = {});

}  // namespace miniacc::testing
