#include "lora_command.h"

#include <memory>

#include "lora_check_command.h"
#include "tool_command.h"

namespace miniacc {
namespace {

void add_convert(CLI::App& group, const CancelToken& cancel, int& status) {
  struct Flags {
    LoraConvertRequest request;
    ToolFlags tool;
    bool no_compact = false;
  };
  auto flags = std::make_shared<Flags>();
  LoraConvertRequest& request = flags->request;
  CLI::App* command =
      group.add_subcommand("convert", "Rewrite an adapter in the other naming, bit for bit");
  command->add_option("input", request.input, "Adapter file")->required();
  command->add_option("output", request.output,
                      "File to write (without it: check and compare only)");
  command->add_option("--to", request.to, "comfy or diffusers")->required();
  command
      ->add_option("--model", request.model,
                   "The transformer it belongs to (file, folder or model folder; header only)")
      ->required();
  command->add_option("--compare", request.compare,
                      "A twin that must hold the same values, tensor by tensor");
  command->add_option("--alpha", request.alpha,
                      "Numerator of the scale of every module, or 'file': the .alpha tensors are "
                      "alpha / rank (default: .alpha tensors are refused)");
  command->add_option("--force-base", request.force_base,
                      "fl2va or ref2va: which transformer's changes to take");
  command->add_flag("--no-compact", flags->no_compact,
                    "Keep the full rank in q, k and v when a fused adapter is split");
  command->add_flag("--overwrite", request.overwrite, "Replace an existing output");
  add_tool_flags(*command, flags->tool);
  command->callback([flags, &cancel, &status] {
    flags->request.compact = !flags->no_compact;
    status = run_tool(flags->tool, [&](const EventSink& events) {
      return convert_lora(flags->request, events, cancel);
    });
  });
}

}  // namespace

void add_lora_command(CLI::App& app, const CancelToken& cancel, int& status) {
  CLI::App* group = app.add_subcommand("lora", "Tools for adapters");
  group->require_subcommand(1);
  add_lora_show_command(*group, status);
  add_lora_verify_command(*group, cancel, status);
  add_convert(*group, cancel, status);
}

}  // namespace miniacc
