#include "generate_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>

#include "commands.h"
#include "condition_options.h"
#include "lora_argument.h"
#include "progress_display.h"

namespace miniacc {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
// More bytes than any prompt or request that is accepted; a file beyond it is a mistake.
constexpr std::size_t kMaxTextFileBytes = std::size_t{4} << 20;

/// The flags of `generate` before they become a request.
struct GenerateFlags {
  GenerateRequest request;
  ConditionFlags conditions;
  RunOptions run;
  std::string request_file;
  std::string prompt_file;
  std::string negative_prompt;
  std::vector<std::string> loras;
  std::string lora_half;
  std::string seed = "0";
  std::string sigmas;
  std::string audio_sigmas;
  std::string aspect;
  double seconds = 0.0;
  double cfg_scale = 1.0;
  std::int64_t fps = 24;
  std::int64_t steps = 0;
  float flow_shift = 0.0F;
  float audio_flow_shift = 0.0F;
  bool no_metadata = false;
  bool dry_run = false;
};

/// `what` names the file's purpose in messages: "prompt", "request".
Result<std::string> read_text_file(const std::string& path, const char* what) {
  std::ifstream file;
  std::istream* input = &std::cin;
  if (path != "-") {
    file.open(path, std::ios::binary);
    input = &file;
    if (!file) {
      return fail(ErrorCode::kNotFound, fmt::format("cannot read the {} file {}", what, path));
    }
  }
  std::string text;
  char buffer[4096];
  while (input->read(buffer, sizeof(buffer)) || input->gcount() > 0) {
    text.append(buffer, static_cast<std::size_t>(input->gcount()));
    if (text.size() > kMaxTextFileBytes) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("the {} file {} is larger than {} bytes",
                                                           what, path, kMaxTextFileBytes));
    }
  }
  if (input->bad()) {
    return fail(ErrorCode::kIo, fmt::format("cannot read the {} file {}", what, path));
  }
  return text;
}

Result<std::string> read_prompt_file(const std::string& path) {
  MINIACC_ASSIGN(std::string text, read_text_file(path, "prompt"));
  // Editors end a file with a newline that nobody meant as part of the prompt.
  if (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  return text;
}

Result<GenerateRequest> read_request_file(const std::string& path) {
  MINIACC_ASSIGN(const std::string text, read_text_file(path, "request"));
  auto request = request_from_json(text);
  if (!request) {
    return fail(request.error().code, fmt::format("{}: {}", path, request.error().message));
  }
  return request;
}

/// 0 … 2^64 - 1; negative or "random" draws one (demands.md U03).
Result<std::uint64_t> parse_seed(const std::string& text) {
  const bool negative = !text.empty() && text.front() == '-';
  std::uint64_t seed = 0;
  const char* begin = text.data() + (negative ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), seed);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (text == "random" || (negative && is_number)) {
    std::random_device device;
    return static_cast<std::uint64_t>(device()) << 32 | device();
  }
  if (!is_number) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--seed must be a whole number below 2^64, or negative for a random "
                            "one; got '{}'",
                            text));
  }
  return seed;
}

Result<std::vector<float>> parse_sigmas(const std::string& option, const std::string& text) {
  std::vector<float> sigmas;
  const char* position = text.data();
  const char* end = text.data() + text.size();
  while (position != end) {
    float value = 0.0F;
    const auto [next, error] = std::from_chars(position, end, value);
    // A comma is followed by a number.
    if (error != std::errc() || (next != end && (*next != ',' || next + 1 == end))) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} must be numbers with commas between, got '{}'", option, text));
    }
    sigmas.push_back(value);
    position = next == end ? end : next + 1;
  }
  return sigmas;
}

/// Fields of the flags' request that were given replace those of `request`.
void apply_plain_flags(const CLI::App& command, const GenerateFlags& flags,
                       GenerateRequest& request) {
  const GenerateRequest& from = flags.request;
  const auto copy = [&](const char* option, auto member) {
    if (command.count(option) > 0) {
      request.*member = from.*member;
    }
  };
  copy("--prompt", &GenerateRequest::prompt);
  copy("--width", &GenerateRequest::width);
  copy("--height", &GenerateRequest::height);
  copy("--frames", &GenerateRequest::num_frames);
  copy("--attention", &GenerateRequest::attention);
  copy("--lora-allow-partial", &GenerateRequest::lora_allow_partial);
  copy("--lora-mode", &GenerateRequest::lora_mode);
  copy("--lora-dir", &GenerateRequest::lora_dir);
  copy("--adaln-base", &GenerateRequest::adaln_base);
  request.output = from.output;
  request.overwrite = from.overwrite;
  request.save_latents = from.save_latents;
  request.resume_latents = from.resume_latents;
  const auto copy_part = [&](const char* option, auto member) {
    if (command.count(option) > 0) {
      request.model.*member = from.model.*member;
    }
  };
  copy_part("--model", &ModelPaths::folder);
  copy_part("--diffusion-model", &ModelPaths::transformer);
  copy_part("--text-encoder", &ModelPaths::text_encoder);
  copy_part("--tokenizer", &ModelPaths::tokenizer);
  copy_part("--vae", &ModelPaths::video_vae);
  copy_part("--audio-vae", &ModelPaths::audio_vae);
  copy_part("--model-half", &ModelPaths::half);
}

/// A schedule given by flags replaces the file's explicit one.
Status apply_sampling_flags(const CLI::App& command, const GenerateFlags& flags,
                            SamplingOptions& sampling) {
  const auto given = [&](const char* option) { return command.count(option) > 0; };
  if (given("--recipe") || given("--steps") || given("--flow-shift") ||
      given("--audio-flow-shift") || given("--sigmas")) {
    sampling.video_sigmas.clear();
    sampling.audio_sigmas.clear();
  }
  if (given("--recipe")) {
    sampling.recipe = flags.request.sampling.recipe;
  }
  if (given("--noise")) {
    sampling.noise = flags.request.sampling.noise;
  }
  if (given("--steps")) {
    sampling.steps = flags.steps;
  }
  if (given("--flow-shift")) {
    sampling.video_shift = flags.flow_shift;
  }
  if (given("--audio-flow-shift")) {
    sampling.audio_shift = flags.audio_flow_shift;
  }
  if (given("--sigmas")) {
    MINIACC_ASSIGN(sampling.video_sigmas, parse_sigmas("--sigmas", flags.sigmas));
  }
  if (given("--audio-sigmas")) {
    MINIACC_ASSIGN(sampling.audio_sigmas, parse_sigmas("--audio-sigmas", flags.audio_sigmas));
  }
  return {};
}

Status check_fixed_flags(const GenerateFlags& flags) {
  if (!flags.negative_prompt.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "MiniMax-H3 is guidance-distilled and has no negative prompt; leave "
                "--negative-prompt out");
  }
  if (flags.cfg_scale != 1.0) {
    return fail(ErrorCode::kInvalidArgument,
                "MiniMax-H3 is guidance-distilled; --cfg-scale can only be 1");
  }
  if (flags.fps != 24) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("MiniMax-H3 makes 24 frames a second; --fps {} is not possible", flags.fps));
  }
  return {};
}

Result<GenerateRequest> make_request(const CLI::App& command, const GenerateFlags& flags) {
  const auto given = [&](const char* option) { return command.count(option) > 0; };
  // A file of latents, or of a request, says the prompt.
  const bool needs_prompt = !given("--resume-latents") && !given("--request");
  if (given("--prompt") == given("--prompt-file") && (given("--prompt") || needs_prompt)) {
    return fail(ErrorCode::kInvalidArgument,
                "give the prompt either with -p or with --prompt-file ('-' reads standard input); "
                "-p '' is an empty prompt");
  }
  MINIACC_RETURN_IF_ERROR(check_fixed_flags(flags));
  GenerateRequest request;
  if (given("--request")) {
    MINIACC_ASSIGN(request, read_request_file(flags.request_file));
  }
  apply_plain_flags(command, flags, request);
  for (const char* side : {"width", "height"}) {
    const bool is_width = std::string_view(side) == "width";
    if (given(is_width ? "--width" : "--height") &&
        (is_width ? request.width : request.height) == 0) {  // inside a request 0 is "not given"
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("the {} must be a multiple of 32 pixels, got 0; the smallest is 32", side));
    }
  }
  if (given("--prompt-file")) {
    MINIACC_ASSIGN(request.prompt, read_prompt_file(flags.prompt_file));
  }
  if (given("--aspect")) {
    if (given("--width") || given("--height")) {
      return fail(ErrorCode::kInvalidArgument, "give either --aspect or --width and --height");
    }
    MINIACC_ASSIGN(const FrameSize size, size_for_aspect(flags.aspect));
    request.width = size.width;
    request.height = size.height;
  }
  if (given("--seconds")) {
    if (given("--frames")) {
      return fail(ErrorCode::kInvalidArgument, "give either --frames or --seconds");
    }
    MINIACC_ASSIGN(request.num_frames, frames_for_seconds(flags.seconds));
  }
  if (given("--lora")) {
    request.loras.clear();
    for (const std::string& text : flags.loras) {
      MINIACC_ASSIGN(request.loras.emplace_back(), parse_lora(text));
      request.loras.back().half = flags.lora_half;
    }
  }
  if (given("--seed")) {
    MINIACC_ASSIGN(request.seed, parse_seed(flags.seed));
  }
  MINIACC_RETURN_IF_ERROR(apply_sampling_flags(command, flags, request.sampling));
  MINIACC_RETURN_IF_ERROR(apply_condition_flags(command, flags.conditions, request));
  request.write_metadata = !flags.no_metadata;
  return request;
}

void print_table(const GenerateResult& result) {
  fmt::print(stderr, "\n{:<22} {:>10} {:>7} {:>12}\n", "stage", "seconds", "share", "peak memory");
  for (const StageReport& stage : result.stages) {
    fmt::print(stderr, "{:<22} {:>10.2f} {:>6.1f}% {:>8.0f} MiB\n", stage.name, stage.seconds,
               100.0 * stage.seconds / result.seconds,
               static_cast<double>(stage.peak_resident_bytes) / kMiB);
    if (stage.name == "denoising") {
      for (std::size_t i = 0; i < result.step_seconds.size(); ++i) {
        fmt::print(stderr, "{:<22} {:>10.2f} {:>6.1f}%\n",
                   fmt::format("  step {}/{}", i + 1, result.step_seconds.size()),
                   result.step_seconds[i], 100.0 * result.step_seconds[i] / result.seconds);
      }
    }
  }
  fmt::print(stderr, "{:<22} {:>10.2f} {:>6.1f}% {:>8.0f} MiB\n", "total", result.seconds, 100.0,
             static_cast<double>(result.peak_resident_bytes) / kMiB);
}

void print_summary(const GenerateResult& result) {
  const GenerateRequest& request = result.request;
  print_table(result);
  for (const LoraReport& lora : result.loras) {
    fmt::print(stderr, "\nadapter {}: strength {:g}, {} changes, {} of {} tensors used",
               lora.path.string(), lora.strength, lora.num_modules, lora.matched,
               lora.matched + lora.unmatched + lora.rejected);
  }
  fmt::print(stderr,
             "\n{} forwards, recipe {}, video sigmas {:.6g}\n"
             "seed {}, noise {}, {} text tokens, {}x{}, {} frames, {}sound {}\n",
             result.num_forwards, request.sampling.recipe,
             fmt::join(request.sampling.video_sigmas, " "), request.seed, request.sampling.noise,
             result.num_text_tokens, request.width, request.height, request.num_frames,
             result.attention.empty() ? "" : fmt::format("attention {}, ", result.attention),
             result.audio);
  fmt::print("{}\n", result.output.string());
}

void print_json_result(const GenerateResult& result) {
  nlohmann::json stages = nlohmann::json::array();
  for (const StageReport& stage : result.stages) {
    stages.push_back({{"name", stage.name},
                      {"seconds", stage.seconds},
                      {"peak_resident_bytes", stage.peak_resident_bytes}});
  }
  const nlohmann::json object = {
      {"event", "result"},
      {"output", result.output.string()},
      {"request", nlohmann::json::parse(request_to_json(result.request))},
      {"forwards", result.num_forwards},
      {"step_seconds", result.step_seconds},
      {"text_tokens", result.num_text_tokens},
      {"attention", result.attention},
      {"audio", result.audio},
      {"stages", stages},
      {"seconds", result.seconds},
      {"peak_resident_bytes", result.peak_resident_bytes},
      {"planned_device_bytes", result.planned_device_bytes},
      {"peak_device_bytes", result.peak_device_bytes},
      {"streams", nlohmann::json::parse(result.streams)},
      {"cache_hits", result.cache_hits},
      {"loras", nlohmann::json::parse(lora_reports_to_json(result.loras))},
      {"warnings", result.warnings}};
  fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void add_model_options(CLI::App& command, ModelPaths& model) {
  command
      .add_option("-m,--model", model.folder, "Model folder (official, diffusers, ComfyUI or GGUF)")
      ->group("Model");
  command.add_option("--diffusion-model", model.transformer, "Transformer file or folder")
      ->group("Model");
  command.add_option("--text-encoder,--llm", model.text_encoder, "Text encoder file or folder")
      ->group("Model");
  command.add_option("--tokenizer", model.tokenizer, "Tokenizer folder or tokenizer.json")
      ->group("Model");
  command.add_option("--vae", model.video_vae, "Video VAE file or folder")->group("Model");
  command.add_option("--audio-vae", model.audio_vae, "Audio VAE file or folder")->group("Model");
  command
      .add_option("--model-half", model.half,
                  "Which half of MiniMax-H3 the transformer is, where no name tells: fl2va (text, "
                  "keyframes) or ref2va (references)")
      ->group("Model");
}

void add_lora_options(CLI::App& command, GenerateFlags& flags) {
  command
      .add_option("--lora", flags.loras,
                  "Adapter to merge: FILE[:STRENGTH[:ALPHA]]; may be given several times")
      ->take_all()
      ->allow_extra_args(false)
      ->group("Model");
  command
      .add_flag("--lora-allow-partial", flags.request.lora_allow_partial,
                "Merge what matches of an adapter and warn about the rest")
      ->group("Model");
}

void add_adapter_way_options(CLI::App& command, GenerateFlags& flags) {
  command
      .add_option("--lora-mode", flags.request.lora_mode,
                  "merge into the weights, side products beside them, or auto (side on quantised "
                  "weights and with --precision int8)")
      ->capture_default_str()
      ->group("Model");
  command
      .add_option("--lora-dir", flags.request.lora_dir,
                  "Where the files of <lora:NAME:WEIGHT> in the prompt are")
      ->group("Model");
  command
      .add_option("--lora-half", flags.lora_half,
                  "Half of MiniMax-H3 that the adapters are for, if their files do not say so: "
                  "fl2va or ref2va")
      ->group("Model");
  command
      .add_option("--adaln-base", flags.request.adaln_base,
                  "Full transformer, to carry AdaLN changes of adapters over to a pruned one")
      ->group("Model");
}

void add_sampling_options(CLI::App& command, GenerateFlags& flags) {
  SamplingOptions& sampling = flags.request.sampling;
  command
      .add_option("--recipe,--preset", sampling.recipe,
                  "Named schedule; `miniacc recipes` lists them (default: what the adapters ask "
                  "for, else base)")
      ->group("Sampling");
  command.add_option("--steps", flags.steps, "Forwards through the model (default: the recipe's)")
      ->group("Sampling");
  command.add_option("--flow-shift", flags.flow_shift, "Sigma shift of the video stream")
      ->group("Sampling");
  command
      .add_option("--audio-flow-shift", flags.audio_flow_shift, "Sigma shift of the audio stream")
      ->group("Sampling");
  command.add_option("--sigmas", flags.sigmas, "Explicit video sigmas, e.g. 1,0.97,0.92,0.8,0")
      ->group("Sampling");
  command
      .add_option("--audio-sigmas", flags.audio_sigmas,
                  "Explicit audio sigmas (default: from --sigmas and the shifts)")
      ->group("Sampling");
  command.add_option("-s,--seed", flags.seed, "Seed; negative draws a random one")
      ->capture_default_str()
      ->group("Sampling");
  command.add_option("--noise", sampling.noise, "Draw order: sglang, diffusers or comfy")
      ->capture_default_str()
      ->group("Sampling");
  command.add_option("--cfg-scale", flags.cfg_scale, "Accepted for compatibility; must be 1")
      ->group("Sampling");
}

std::filesystem::path default_cache_dir() {
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  if (xdg != nullptr && std::filesystem::path(xdg).is_absolute()) {  // the standard ignores others
    return std::filesystem::path(xdg) / "miniacc";
  }
  const char* home = std::getenv("HOME");
  return home != nullptr && *home != 0 ? std::filesystem::path(home) / ".cache" / "miniacc"
                                       : std::filesystem::path();
}

}  // namespace

Result<std::size_t> parse_size(const std::string& option, const std::string& text) {
  const auto refuse = [&] {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} must be a size such as 512MiB or 2GB, got '{}'", option, text));
  };
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  auto [position, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc()) {
    return refuse();
  }
  while (position != end && *position == ' ') {
    ++position;
  }
  std::string unit(position, end);
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::uint64_t factor = 1;
  const std::string prefixes = "kmgt";
  const std::size_t power = unit.empty() ? std::string::npos : prefixes.find(unit.front());
  if (power != std::string::npos) {
    const bool binary = unit.size() == 1 || unit.substr(1) == "ib";
    if (!binary && unit.substr(1) != "b") {
      return refuse();
    }
    for (std::size_t i = 0; i <= power; ++i) {
      factor *= binary ? 1024 : 1000;
    }
  } else if (!unit.empty() && unit != "b") {
    return refuse();
  }
  if (value > std::numeric_limits<std::size_t>::max() / factor) {
    return refuse();
  }
  return static_cast<std::size_t>(value * factor);
}

void add_device_options(CLI::App& command, RunOptions& options) {
  command.add_option("-t,--threads", options.engine.num_threads, "CPU threads (0: all cores)")
      ->check(CLI::Range(0, 4096))
      ->group("Running");
  command
      .add_option("--precision", options.engine.precision,
                  "Matrix products in f32 (reference), bf16 or int8")
      ->capture_default_str()
      ->group("Running");
  command
      .add_option("--vae-precision", options.engine.vae_precision,
                  "Products of the video decoder: auto, f32, bf16 or int8 (auto: those of "
                  "--precision, but bf16 on a GPU where that is int8)")
      ->capture_default_str()
      ->group("Running");
  command
      .add_option("--device", options.engine.device,
                  "Where to compute: auto, cpu, cuda or cuda:N (auto: the GPU where there is one)")
      ->capture_default_str()
      ->group("Running");
  command
      .add_option("--vram", options.vram,
                  "Most device memory to hold, e.g. 24GiB (default: what is free, less 512MiB)")
      ->group("Running");
  command
      .add_option("--weight-cache", options.weight_cache,
                  "Memory for weights kept between steps, e.g. 2GiB")
      ->capture_default_str()
      ->group("Running");
}

void add_run_options(CLI::App& command, RunOptions& options) {
  add_device_options(command, options);
  command
      .add_option("--cache-dir", options.cache_dir,
                  "Folder for encoded prompts and modulation (default: $XDG_CACHE_HOME/miniacc)")
      ->group("Running");
  command
      .add_flag("--no-cache", options.no_cache, "Keep nothing on disk and look nothing up there")
      ->group("Running");
  command.add_flag("--json", options.json, "Print one JSON object a line for programs")
      ->group("Running");
  command.add_flag("-q,--quiet", options.quiet, "Print warnings and the result only")
      ->group("Running");
}

Result<EngineOptions> engine_options(const RunOptions& options) {
  EngineOptions engine = options.engine;
  MINIACC_ASSIGN(engine.weight_cache_bytes, parse_size("--weight-cache", options.weight_cache));
  if (options.no_cache && !options.cache_dir.empty()) {
    return fail(ErrorCode::kInvalidArgument, "--no-cache and --cache-dir exclude each other");
  }
  if (!options.no_cache) {
    engine.cache_dir = options.cache_dir.empty() ? default_cache_dir() : options.cache_dir;
  }
  if (!options.vram.empty()) {
    MINIACC_ASSIGN(engine.vram_bytes, parse_size("--vram", options.vram));
  }
  return engine;
}

int run_plan(const GenerateRequest& request, const RunOptions& options) {
  const auto engine = engine_options(options);
  if (!engine) {
    return report_error(engine.error(), report_format(options.json));
  }
  const auto plan = Engine(*engine).plan(request);
  if (!plan) {
    return report_error(plan.error(), report_format(options.json));
  }
  for (const std::string& warning : plan->warnings) {
    fmt::print(stderr, "miniacc: warning: {}\n", printable(warning));
  }
  fmt::print("{}\n", options.json ? plan->json : plan->text);
  return 0;
}

int run_generate(const GenerateRequest& request, const RunOptions& options,
                 const CancelToken& cancel) {
  const ProgressStyle style = options.json    ? ProgressStyle::kJson
                              : options.quiet ? ProgressStyle::kQuiet
                                              : ProgressStyle::kAuto;
  ProgressDisplay display(style);
  const auto engine = engine_options(options);
  if (!engine) {
    return report_error(engine.error(), report_format(options.json));
  }
  const auto result = Engine(*engine).generate(
      request, [&](const Event& event) { display.show(event); }, cancel);
  display.finish();
  if (!result) {
    return report_error(result.error(), report_format(options.json));
  }
  if (options.json) {
    print_json_result(*result);
  } else if (options.quiet) {
    fmt::print("{}\n", result->output.string());
  } else {
    print_summary(*result);
  }
  return 0;
}

void add_generate_command(CLI::App& app, const CancelToken& cancel, int& status) {
  auto flags = std::make_shared<GenerateFlags>();
  CLI::App* command = app.add_subcommand("generate", "Make a clip from a prompt");
  command->add_option("-p,--prompt", flags->request.prompt, "What to show and to sound")
      ->group("Clip");
  command
      ->add_option("--prompt-file", flags->prompt_file,
                   "Read the prompt from a file, '-' for stdin")
      ->group("Clip");
  command
      ->add_option("--request", flags->request_file,
                   "Read the request from a JSON file ('-': standard input); flags replace its "
                   "fields")
      ->group("Clip");
  command
      ->add_option("-n,--negative-prompt", flags->negative_prompt,
                   "Refused: the model has no negative prompt")
      ->group("Clip");
  command
      ->add_option("-W,--width", flags->request.width,
                   "Pixels, a multiple of 32 (default: 1344x768, or the first keyframe's shape)")
      ->group("Clip");
  command->add_option("-H,--height", flags->request.height, "Pixels, a multiple of 32")
      ->group("Clip");
  command
      ->add_option("--aspect", flags->aspect,
                   "Trained size for a ratio such as 16:9, instead of -W and -H")
      ->group("Clip");
  command
      ->add_option("--frames,--video-frames", flags->request.num_frames,
                   "Frames at 24 a second; the model makes 17n + 5")
      ->capture_default_str()
      ->group("Clip");
  command->add_option("--seconds", flags->seconds, "Length instead of --frames")->group("Clip");
  command->add_option("--fps", flags->fps, "Accepted for compatibility; must be 24")->group("Clip");
  command
      ->add_option("-o,--output", flags->request.output,
                   ".mp4, .mkv, .wav, or a folder for PNG frames (ends in '/')")
      ->group("Output");
  command->add_flag("--overwrite", flags->request.overwrite, "Replace an existing output")
      ->group("Output");
  command->add_flag("--no-metadata", flags->no_metadata, "Do not store the request in the file")
      ->group("Output");
  command
      ->add_option("--save-latents", flags->request.save_latents,
                   "Also write the clean latents to this .safetensors file")
      ->group("Output");
  command
      ->add_option("--resume-latents", flags->request.resume_latents,
                   "Decode these latents instead of sampling")
      ->group("Output");
  command
      ->add_flag(
          "--dry-run,--plan", flags->dry_run,
          "Print what the job comes to (layout, final text, memory, work) and stop; reads no "
          "weights, -m synthetic:full needs none, and --device cuda --vram needs no GPU")
      ->group("Output");
  add_condition_options(*command, flags->conditions);
  add_model_options(*command, flags->request.model);
  add_lora_options(*command, *flags);
  add_adapter_way_options(*command, *flags);
  add_sampling_options(*command, *flags);
  add_run_options(*command, flags->run);
  command
      ->add_option(
          "--attention", flags->request.attention,
          "Products of the transformer's attention in f32, bf16 or int8 (default: f32 with "
          "--precision f32, else bf16)")
      ->group("Running");
  command->callback([command, flags, &cancel, &status] {
    const auto request = make_request(*command, *flags);
    status = !request         ? report_error(request.error(), report_format(flags->run.json))
             : flags->dry_run ? run_plan(*request, flags->run)
                              : run_generate(*request, flags->run, cancel);
  });
}

}  // namespace miniacc
