#pragma once

#include <CLI/CLI.hpp>

#include "miniacc/cancel_token.h"

namespace miniacc {

/// `miniacc bench`: the engine timed, stage by stage.
void add_bench_command(CLI::App& app, const CancelToken& cancel, int& status);

}  // namespace miniacc
