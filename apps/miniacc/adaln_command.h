#pragma once

#include <CLI/CLI.hpp>

#include "miniacc/cancel_token.h"

namespace miniacc {

/// `miniacc adaln rebase` and `lift`; the callbacks leave the exit code in `status`.
void add_adaln_command(CLI::App& app, const CancelToken& cancel, int& status);

}  // namespace miniacc
