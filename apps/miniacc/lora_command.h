#pragma once

#include <CLI/CLI.hpp>

#include "miniacc/cancel_token.h"

namespace miniacc {

/// The group `miniacc lora`: show, verify, convert; the callback leaves the exit code in `status`.
void add_lora_command(CLI::App& app, const CancelToken& cancel, int& status);

}  // namespace miniacc
