#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string_view>

#include "adaln_command.h"
#include "bench_command.h"
#include "commands.h"
#include "convert_command.h"
#include "generate_command.h"
#include "lora_command.h"
#include "miniacc/miniacc.h"
#include "signal_cancel.h"

namespace {

bool has_command(CLI::App& app, std::string_view name) {
  return !app.get_subcommands([&](const CLI::App* command) { return command->get_name() == name; })
              .empty();
}

/// Reads the words themselves: after a mistake in them no flag can be asked.
bool wants_json(int argc, char** argv) {
  return std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
}

int run(int argc, char** argv) {
  miniacc::SignalCancel signals;  // Ctrl-C asks the running job to stop
  int status = 0;

  CLI::App app{
      "MiniAcc makes short videos with sound from a prompt, with MiniMax-H3 on your machine."};
  app.name("miniacc");
  app.set_version_flag("--version", std::string("miniacc ") + miniacc::version());
  app.require_subcommand(1);
  miniacc::add_generate_command(app, signals.token(), status);
  miniacc::add_show_command(app, signals.token(), status);
  miniacc::add_judge_command(app, status);
  miniacc::add_sheet_command(app, status);
  miniacc::add_inspect_command(app, status);
  miniacc::add_tokenize_command(app, status);
  miniacc::add_doctor_command(app, status);
  miniacc::add_recipes_command(app, status);
  miniacc::add_bench_command(app, signals.token(), status);
  miniacc::add_make_checkpoint_command(app, signals.token(), status);
  miniacc::add_convert_command(app, signals.token(), status);
  miniacc::add_quantize_command(app, signals.token(), status);
  miniacc::add_adaln_command(app, signals.token(), status);
  miniacc::add_lora_command(app, signals.token(), status);

  if (argc > 1 && argv[1][0] != '-' && !has_command(app, argv[1])) {
    return miniacc::report_error(
        {miniacc::ErrorCode::kInvalidArgument,
         fmt::format("there is no command '{}'; --help lists the commands", argv[1])},
        miniacc::report_format(wants_json(argc, argv)));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // help or version
      return app.exit(error);
    }
    const std::string message = error.what();
    return miniacc::report_error(
        {miniacc::ErrorCode::kInvalidArgument,
         fmt::format("{}; --help lists the flags", message.substr(0, message.find('\n')))},
        miniacc::report_format(wants_json(argc, argv)));
  }
  return status;
}

/// A report that could not be written is a failure, whatever the command thought of it.
int finish_output(int status) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) {
    return status;
  }
  fmt::print(stderr, "miniacc: error: standard output could not be written\n");
  return status == 0 ? 1 : status;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return finish_output(run(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "miniacc: error: {}\n", error.what());
    return 1;
  }
}
