#include "commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "generate_command.h"
#include "miniacc/tools.h"
#include "progress_display.h"

namespace miniacc {

std::string printable(std::string text) {
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      c = '?';
    }
  }
  return text;
}

ReportFormat report_format(bool json) { return json ? ReportFormat::kJson : ReportFormat::kText; }

int report_error(const Error& error, ReportFormat format) {
  if (format == ReportFormat::kJson) {
    const nlohmann::json object = {
        {"event", "error"}, {"code", error_code_name(error.code)}, {"message", error.message}};
    fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  fmt::print(stderr, "miniacc: error: {}\n", printable(error.message));
  return exit_code(error.code);
}

void add_show_command(CLI::App& app, const CancelToken& cancel, int& status) {
  struct Flags {
    std::string path;
    std::string output;
    std::string model;
    bool json = false;
    bool rerun = false;
    bool overwrite = false;
    RunOptions run;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("show", "Print how a clip was made, or make it again");
  command->add_option("file", flags->path, "Clip made by miniacc")->required();
  command->add_flag("--rerun", flags->rerun,
                    "Make the clip again with the same request (needs -o)");
  command->add_option("-o,--output", flags->output, "Where --rerun writes");
  command->add_option("-m,--model", flags->model, "Use this model folder for --rerun");
  command->add_flag("--overwrite", flags->overwrite, "Replace an existing output");
  add_run_options(*command, flags->run);
  command->callback([command, flags, &cancel, &status] {
    const ReportFormat format = report_format(flags->run.json);
    auto report = show_clip(flags->path);
    if (!report) {
      status = report_error(report.error(), format);
      return;
    }
    if (!flags->rerun) {
      fmt::print("{}\n", flags->run.json ? report->json : report->text);
      return;
    }
    if (!report->has_request) {
      status = report_error({ErrorCode::kInvalidInput,
                             fmt::format("{} carries no request to run again", flags->path)},
                            format);
      return;
    }
    GenerateRequest request = report->request;
    request.output = flags->output;
    request.overwrite = flags->overwrite;
    if (!flags->model.empty()) {
      request.model = {};
      request.model.folder = flags->model;
    }
    RunOptions run = flags->run;
    if (command->count("--precision") == 0) {
      run.engine.precision = report->precision;
    }
    if (command->count("--vae-precision") == 0) {
      run.engine.vae_precision = report->vae_precision;
    }
    status = run_generate(request, run, cancel);
  });
}

void add_judge_command(CLI::App& app, int& status) {
  struct Flags {
    std::string path;
    std::string caption;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand(
      "judge", "Measure a clip: what it shows, how it sounds, whether that fits its caption");
  command->add_option("file", flags->path, "Clip, sound file or folder of frames")->required();
  CLI::Option* caption = command->add_option(
      "--caption", flags->caption, "What it should show (default: the prompt stored in the clip)");
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback([flags, caption, &status] {
    const auto wanted =
        caption->count() > 0 ? std::optional<std::string>(flags->caption) : std::nullopt;
    const auto report = judge_clip(flags->path, wanted, report_format(flags->json));
    if (!report) {
      status = report_error(report.error());
      return;
    }
    fmt::print("{}\n", *report);
  });
}

void add_sheet_command(CLI::App& app, int& status) {
  auto request = std::make_shared<SheetRequest>();
  CLI::App* command = app.add_subcommand(
      "sheet", "Show clips in one picture: frames in a row, waveforms under them");
  command->add_option("clips", request->clips, "Clips, sound files or folders of frames")
      ->required();
  command->add_option("-o,--output", request->output, "PNG to write")->required();
  command->add_option("--frames", request->num_frames, "Frames of each clip")
      ->capture_default_str();
  command->add_flag("--overwrite", request->overwrite, "Replace an existing output");
  command->callback([request, &status] {
    if (const auto made = make_sheet(*request); !made) {
      status = report_error(made.error());
      return;
    }
    fmt::print("{}\n", request->output.string());
  });
}

void add_inspect_command(CLI::App& app, int& status) {
  struct Flags {
    std::string path;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      app.add_subcommand("inspect", "Say what a checkpoint file or model folder holds");
  command->add_option("path", flags->path, "File or folder")->required();
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback([flags, &status] {
    const auto report = inspect_checkpoint(flags->path, report_format(flags->json));
    if (!report) {
      status = report_error(report.error());
      return;
    }
    fmt::print("{}\n", *report);
  });
}

void add_tokenize_command(CLI::App& app, int& status) {
  struct Flags {
    std::string model;
    std::string text;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("tokenize", "Print the token ids of a text");
  command
      ->add_option("-m,--model", flags->model, "Model folder, tokenizer folder or tokenizer.json")
      ->required();
  command->add_option("text", flags->text, "The text")->required();
  command->add_flag("--json", flags->json, "Print ids and tokens as JSON");
  command->callback([flags, &status] {
    const auto result = tokenize(flags->model, flags->text);
    if (!result) {
      status = report_error(result.error());
      return;
    }
    for (const std::string& warning : result->warnings) {
      fmt::print(stderr, "miniacc: warning: {}\n", warning);
    }
    if (flags->json) {
      const nlohmann::json object = {{"ids", result->ids}, {"tokens", result->tokens}};
      fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    } else {
      fmt::print("{}\n", fmt::join(result->ids, " "));
    }
  });
}

void add_doctor_command(CLI::App& app, int& status) {
  struct Options {
    std::string device = "auto";
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("doctor", "Tell what this machine and this build can do");
  command
      ->add_option("--device", options->device,
                   "Judge this device: auto, cpu, cuda or cuda:N; exit code 1 where it cannot be "
                   "used")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, &status] {
    const auto report = report_machine(options->device, report_format(options->json));
    if (!report) {
      status = report_error(report.error(), report_format(options->json));
      return;
    }
    fmt::print("{}\n", report->text);
    status = report->device_works ? 0 : 1;
  });
}

void add_recipes_command(CLI::App& app, int& status) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("recipes", "List the sampling recipes");
  command->add_flag("--json", *json, "Print JSON");
  command->callback([json, &status] {
    fmt::print("{}\n", list_recipes(report_format(*json)));
    status = 0;
  });
}

void add_make_checkpoint_command(CLI::App& app, const CancelToken& cancel, int& status) {
  auto request = std::make_shared<MakeCheckpointRequest>();
  CLI::App* command = app.add_subcommand(
      "make-checkpoint", "Write a complete random model (for tests and measurements)");
  command->add_option("--size", request->size, "tiny, small or full")->capture_default_str();
  command
      ->add_option("--format", request->format, "official, diffusers, comfy, comfy-pruned or gguf")
      ->capture_default_str();
  command->add_option("--dtype", request->dtype,
                      "bf16, f32, f16; comfy also fp8_scaled, int8_convrot; gguf also q8_0, q4_0, "
                      "q4_k (default: bf16, q8_0 for gguf)");
  command->add_option("--seed", request->seed, "Seed of the weights")->capture_default_str();
  command->add_option("output", request->output, "Folder to make")->required();
  command->callback([request, &cancel, &status] {
    ProgressDisplay display(ProgressStyle::kAuto);
    const auto made = make_checkpoint(
        *request, [&](const Event& event) { display.show(event); }, cancel);
    display.finish();
    if (!made) {
      status = report_error(made.error());
      return;
    }
    fmt::print("{}\n", request->output.string());
  });
}

}  // namespace miniacc
