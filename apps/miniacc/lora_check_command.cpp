#include "lora_check_command.h"

#include <fmt/format.h>

#include <memory>

#include "commands.h"
#include "lora_argument.h"
#include "miniacc/lora_check.h"

namespace miniacc {

void add_lora_show_command(CLI::App& group, int& status) {
  struct Flags {
    std::string lora;
    std::string model;
    bool allow_partial = false;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      group.add_subcommand("show", "Say what an adapter holds and what a transformer takes of it");
  command->add_option("file", flags->lora, "Adapter: FILE[:STRENGTH[:ALPHA]]")->required();
  command->add_option("-m,--model", flags->model, "Transformer file or folder, or model folder")
      ->required();
  command->add_flag("--lora-allow-partial", flags->allow_partial,
                    "Accept tensors that match nothing");
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback([flags, &status] {
    const ReportFormat format = report_format(flags->json);
    const auto request = parse_lora(flags->lora);
    const auto report = request ? show_lora(*request, flags->model, flags->allow_partial, format)
                                : tl::unexpected(request.error());
    if (!report) {
      status = report_error(report.error(), format);
      return;
    }
    fmt::print("{}\n", *report);
  });
}

void add_lora_verify_command(CLI::App& group, const CancelToken& cancel, int& status) {
  struct Flags {
    std::string lora;
    std::string half;
    LoraVerifyRequest request;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command = group.add_subcommand(
      "verify", "Prove that an adapter changes the transformer, and as its file says");
  LoraVerifyRequest& request = flags->request;
  command->add_option("file", flags->lora, "Adapter: FILE[:STRENGTH[:ALPHA]]")->required();
  command
      ->add_option("-m,--model", request.transformer, "Transformer file or folder, or model folder")
      ->required();
  command->add_flag("--lora-allow-partial", request.allow_partial,
                    "Accept tensors that match nothing");
  command->add_option("--lora-mode", request.mode, "auto, merge or side")->capture_default_str();
  command->add_option("--lora-half", flags->half, "fl2va or ref2va");
  command->add_option("--adaln-base", request.adaln_base,
                      "Full transformer, to carry AdaLN changes over to a pruned one");
  command->add_option("--precision", request.engine.precision, "f32, bf16 or int8")
      ->capture_default_str();
  command->add_option("-t,--threads", request.engine.num_threads, "CPU threads (0: all cores)")
      ->check(CLI::Range(0, 4096));
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback([flags, &cancel, &status] {
    const ReportFormat format = report_format(flags->json);
    auto lora = parse_lora(flags->lora);
    if (!lora) {
      status = report_error(lora.error(), format);
      return;
    }
    flags->request.lora = *std::move(lora);
    flags->request.lora.half = flags->half;
    const auto result = verify_lora(flags->request, format, cancel);
    if (!result) {
      status = report_error(result.error(), format);
      return;
    }
    fmt::print("{}\n", result->report);
    status = result->verified ? 0 : 1;
  });
}

}  // namespace miniacc
