#pragma once

#include <CLI/CLI.hpp>

#include "miniacc/cancel_token.h"

namespace miniacc {

/// Each adds one subcommand; its callback leaves the exit code in `status`.
void add_convert_command(CLI::App& app, const CancelToken& cancel, int& status);
void add_quantize_command(CLI::App& app, const CancelToken& cancel, int& status);

}  // namespace miniacc
