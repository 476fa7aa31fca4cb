#pragma once

#include <CLI/CLI.hpp>

#include "miniacc/cancel_token.h"

namespace miniacc {

/// Commands of the group `miniacc lora` that look at an adapter; each leaves its exit code in
/// `status`.
void add_lora_show_command(CLI::App& group, int& status);
void add_lora_verify_command(CLI::App& group, const CancelToken& cancel, int& status);

}  // namespace miniacc
