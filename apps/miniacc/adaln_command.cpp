#include "adaln_command.h"

#include <memory>

#include "tool_command.h"

namespace miniacc {
namespace {

void add_rebase(CLI::App& group, const CancelToken& cancel, int& status) {
  struct Flags {
    AdalnRebaseRequest request;
    ToolFlags tool;
  };
  auto flags = std::make_shared<Flags>();
  AdalnRebaseRequest& request = flags->request;
  CLI::App* command = group.add_subcommand(
      "rebase", "Write the modulation of a finetuned full checkpoint as a change of a pruned one");
  command->add_option("full", request.full, "Finetuned transformer with its time MLP")->required();
  command->add_option("pruned", request.pruned, "Pruned transformer")->required();
  command->add_option("output", request.output, "Adapter to write")->required();
  command->add_option("--merge-into", request.merge_into,
                      "Adapter in ComfyUI's names whose tensors are written as well");
  command
      ->add_option("--max-rel-resid", request.max_rel_resid,
                   "Largest relative residual of a layer; above it nothing is written")
      ->capture_default_str();
  command->add_flag("--overwrite", request.overwrite, "Replace an existing output");
  add_tool_flags(*command, flags->tool, "--stats,--json");
  command->callback([flags, &cancel, &status] {
    status = run_tool(flags->tool, [&](const EventSink& events) {
      return rebase_adaln(flags->request, events, cancel);
    });
  });
}

void add_lift(CLI::App& group, const CancelToken& cancel, int& status) {
  struct Flags {
    AdalnLiftRequest request;
    ToolFlags tool;
  };
  auto flags = std::make_shared<Flags>();
  AdalnLiftRequest& request = flags->request;
  CLI::App* command = group.add_subcommand(
      "lift", "Write an adapter that was trained on a pruned transformer for the full one");
  command->add_option("input", request.input, "Adapter")->required();
  command->add_option("full", request.full, "Transformer with the time MLP")->required();
  command->add_option("pruned", request.pruned, "Pruned transformer it was trained on")->required();
  command->add_option("output", request.output, "Adapter to write")->required();
  command
      ->add_option("--max-rel-resid", request.max_rel_resid,
                   "Largest relative residual of the table as a function of the full width")
      ->capture_default_str();
  command->add_flag("--overwrite", request.overwrite, "Replace an existing output");
  add_tool_flags(*command, flags->tool, "--stats,--json");
  command->callback([flags, &cancel, &status] {
    status = run_tool(flags->tool, [&](const EventSink& events) {
      return lift_adaln(flags->request, events, cancel);
    });
  });
}

}  // namespace

void add_adaln_command(CLI::App& app, const CancelToken& cancel, int& status) {
  CLI::App* group = app.add_subcommand("adaln", "Tools for the modulation of pruned checkpoints");
  group->require_subcommand(1);
  add_rebase(*group, cancel, status);
  add_lift(*group, cancel, status);
}

}  // namespace miniacc
