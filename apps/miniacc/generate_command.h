#pragma once

#include <CLI/CLI.hpp>

#include "miniacc/miniacc.h"

namespace miniacc {

/// `miniacc generate`: from a prompt to a clip.
void add_generate_command(CLI::App& app, const CancelToken& cancel, int& status);

/// How a job is shown and run, shared by the commands that generate.
struct RunOptions {
  EngineOptions engine;
  std::string weight_cache = "512MiB";
  std::string vram;                 ///< empty: what is free
  std::filesystem::path cache_dir;  ///< empty: the user's, unless no_cache
  bool no_cache = false;
  bool json = false;
  bool quiet = false;
};
void add_run_options(CLI::App& command, RunOptions& options);
/// Of those the flags that say how and where to compute.
void add_device_options(CLI::App& command, RunOptions& options);
/// "2GiB", "512 MB", "1000": decimal and binary units up to terabytes. kInvalidArgument names the
/// option.
[[nodiscard]] Result<std::size_t> parse_size(const std::string& option, const std::string& text);
/// The engine's options from the flags; kInvalidArgument for sizes that are none.
[[nodiscard]] Result<EngineOptions> engine_options(const RunOptions& options);

/// Runs the request with a progress display, prints the closing table, returns the exit code.
int run_generate(const GenerateRequest& request, const RunOptions& options,
                 const CancelToken& cancel);

}  // namespace miniacc
