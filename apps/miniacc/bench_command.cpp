#include "bench_command.h"

#include <memory>
#include <string>

#include "commands.h"
#include "generate_command.h"
#include "miniacc/bench.h"
#include "tool_command.h"

namespace miniacc {

void add_bench_command(CLI::App& app, const CancelToken& cancel, int& status) {
  struct Flags {
    BenchRequest request;
    RunOptions run;
    ToolFlags tool;
    std::int64_t steps = 0;
    std::vector<std::string> compare_vram;
  };
  auto flags = std::make_shared<Flags>();
  flags->run.engine.precision = "int8";
  BenchRequest& request = flags->request;
  CLI::App* command = app.add_subcommand(
      "bench", "Time the engine stage by stage: one run that is not counted, then --runs of them");
  command
      ->add_option("-m,--model", request.model.folder,
                   "Model folder, or made-up weights: synthetic:full-int8, synthetic:full-bf16, "
                   "synthetic:tiny-bf16")
      ->required();
  command->add_option("-W,--width", request.width, "Pixels")->capture_default_str();
  command->add_option("-H,--height", request.height, "Pixels")->capture_default_str();
  command->add_option("--frames", request.num_frames, "Frames at 24 a second")
      ->capture_default_str();
  command->add_option("--recipe,--preset", request.sampling.recipe,
                      "Noise schedule (default: lightx2v4, four forwards)");
  command->add_option("--steps", flags->steps, "Forwards (default: the recipe's)")
      ->check(CLI::Range(1, 1000));
  command
      ->add_option("--text-tokens", request.num_text_tokens, "Random tokens for the text encoder")
      ->capture_default_str();
  command
      ->add_option("--stages", request.stages,
                   "Only these of text,denoise,audio,video,save (default: all)")
      ->delimiter(',');
  command->add_option("--runs", request.runs, "Counted runs")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command
      ->add_option("--compare-vram", flags->compare_vram,
                   "Limits of device memory, say 24GiB,100GiB: the benchmark under each, compared "
                   "with the last")
      ->delimiter(',');
  command->add_option("--attention", request.attention,
                      "Products of the transformer's attention: f32, bf16 or int8 (default: bf16)");
  add_device_options(*command, flags->run);
  add_tool_flags(*command, flags->tool);
  command->callback([flags, &cancel, &status] {
    const auto engine = engine_options(flags->run);
    if (!engine) {
      status = report_error(engine.error(), report_format(flags->tool.json == "-"));
      return;
    }
    flags->request.engine = *engine;
    for (const std::string& limit : flags->compare_vram) {
      const auto bytes = parse_size("--compare-vram", limit);
      if (!bytes) {
        status = report_error(bytes.error(), report_format(flags->tool.json == "-"));
        return;
      }
      flags->request.compare_vram_bytes.push_back(*bytes);
    }
    if (!flags->compare_vram.empty() && !flags->run.vram.empty()) {
      status = report_error({ErrorCode::kInvalidArgument,
                             "--vram and --compare-vram both set the limit of device memory: name "
                             "one of them"},
                            report_format(flags->tool.json == "-"));
      return;
    }
    if (flags->steps > 0) {
      flags->request.sampling.steps = flags->steps;
    }
    status = run_tool(flags->tool, [&](const EventSink& events) {
      return run_bench(flags->request, events, cancel);
    });
  });
}

}  // namespace miniacc
