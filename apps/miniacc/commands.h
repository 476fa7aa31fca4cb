#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "miniacc/cancel_token.h"
#include "miniacc/error.h"
#include "miniacc/tools.h"

namespace miniacc {

[[nodiscard]] ReportFormat report_format(bool json);

/// Control characters become '?': names and texts from files must not steer a terminal, and a
/// message is one line.
std::string printable(std::string text);

/// Prints the one line every failed command ends with and returns the exit code. With kJson a
/// program gets the same as an "error" event on standard output.
int report_error(const Error& error, ReportFormat format = ReportFormat::kText);

/// Each adds one subcommand; its callback leaves the exit code in `status`.
void add_show_command(CLI::App& app, const CancelToken& cancel, int& status);
void add_judge_command(CLI::App& app, int& status);
void add_sheet_command(CLI::App& app, int& status);
void add_inspect_command(CLI::App& app, int& status);
void add_tokenize_command(CLI::App& app, int& status);
void add_doctor_command(CLI::App& app, int& status);
void add_recipes_command(CLI::App& app, int& status);
void add_make_checkpoint_command(CLI::App& app, const CancelToken& cancel, int& status);

}  // namespace miniacc
