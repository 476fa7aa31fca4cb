#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "commands.h"
#include "generate_command.h"
#include "miniacc/miniacc.h"
#include "signal_cancel.h"

namespace {

constexpr int kUsageError = 2;

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
  miniacc::add_inspect_command(app, status);
  miniacc::add_tokenize_command(app, status);
  miniacc::add_recipes_command(app, status);
  miniacc::add_make_checkpoint_command(app, signals.token(), status);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool asked_for_help = error.get_exit_code() == 0;
    const int code = app.exit(error);
    return asked_for_help ? code : kUsageError;
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "miniacc: error: {}\n", error.what());
    return 1;
  }
}
