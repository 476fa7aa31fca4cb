#include "miniacc/bench.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "api/guarded.h"
#include "device/cpu_device.h"
#include "io/media/audio_samples.h"
#include "io/media/video_writer.h"
#include "runtime/ceilings.h"
#include "runtime/compute_device.h"
#include "runtime/job_progress.h"
#include "runtime/noise.h"
#include "runtime/pipeline.h"
#include "runtime/process_memory.h"
#include "runtime/request.h"

namespace miniacc {
namespace {

using Json = nlohmann::json;

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

struct StageName {
  const char* flag;
  const char* stage;
};
constexpr std::array<StageName, 5> kStages = {{{"text", kTextStage},
                                               {"denoise", kDenoiseStage},
                                               {"audio", kAudioStage},
                                               {"video", kVideoStage},
                                               {"save", kSaveStage}}};

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A folder under the system's temporary one that goes with the object.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "miniacc-bench-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) {
      path_ = name;
    }
  }
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) {
      std::filesystem::remove_all(path_, ignored);
    }
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Times of one thing over the counted runs.
struct Times {
  std::vector<double> seconds;

  [[nodiscard]] double median() const {
    std::vector<double> sorted = seconds;
    std::ranges::sort(sorted);
    const std::size_t half = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2.0;
  }
  [[nodiscard]] double min() const { return *std::ranges::min_element(seconds); }
  [[nodiscard]] double max() const { return *std::ranges::max_element(seconds); }
  [[nodiscard]] Json json() const {
    return {{"median_s", median()}, {"min_s", min()}, {"max_s", max()}, {"runs_s", seconds}};
  }
};

class Bench {
 public:
  Bench(const BenchRequest& request, const EventSink& events, const CancelToken& cancel)
      : request_(request), events_(events), cancel_(&cancel) {}

  Result<ToolReport> run() {
    MINIACC_RETURN_IF_ERROR(prepare());
    for (int run = 0; run <= request_.runs; ++run) {
      note(run == 0 ? std::string("a first run, which is not counted")
                    : fmt::format("run {} of {}", run, request_.runs));
      MINIACC_RETURN_IF_ERROR(run_once(run));
    }
    return report();
  }

 private:
  void note(const std::string& message) const {
    Event event;
    event.kind = Event::Kind::kNote;
    event.message = message;
    events_(event);
  }

  [[nodiscard]] bool wanted(std::string_view flag) const {
    return request_.stages.empty() ||
           std::ranges::find(request_.stages, flag) != request_.stages.end();
  }

  Status check_request() {
    for (const std::string& stage : request_.stages) {
      if (std::ranges::none_of(kStages, [&](const StageName& s) { return s.flag == stage; })) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("--stages: there is no stage '{}'; stages are text, denoise, "
                                "audio, video and save",
                                stage));
      }
    }
    if (wanted("save") && !wanted("video")) {
      return fail(ErrorCode::kInvalidArgument,
                  "--stages: save encodes the frames of the stage video; name both");
    }
    constexpr std::int64_t kMostTokens = 32768;
    if (request_.num_text_tokens < 1 || request_.num_text_tokens > kMostTokens) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("--text-tokens must be 1 to {}, got {}",
                                                           kMostTokens, request_.num_text_tokens));
    }
    if (request_.runs < 1) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--runs must be at least 1, got {}", request_.runs));
    }
    return {};
  }

  Status prepare() {
    MINIACC_RETURN_IF_ERROR(check_request());
    GenerateRequest generate;
    generate.prompt = "bench";
    generate.width = request_.width;
    generate.height = request_.height;
    generate.num_frames = request_.num_frames;
    generate.sampling = request_.sampling;
    if (generate.sampling.recipe.empty() && generate.sampling.video_sigmas.empty()) {
      generate.sampling.recipe = "lightx2v4";
    }
    generate.model = request_.model;
    generate.attention = request_.attention;
    MINIACC_ASSIGN(prepared_, prepare_request(generate, {.needs_output = false}));
    for (const std::string& text : prepared_.notes) {
      note(text);
    }
    MINIACC_ASSIGN(precision_, parse_precision(request_.engine.precision));
    MINIACC_ASSIGN(const auto vae_precision, parse_vae_precision(request_.engine.vae_precision));
    MINIACC_ASSIGN(const DeviceChoice choice, parse_device(request_.engine.device));
    MINIACC_ASSIGN(compute_, open_compute_device(choice, request_.engine.vram_bytes));
    if (!compute_.note.empty()) {
      note(compute_.note);
    }
    const int threads = request_.engine.num_threads > 0
                            ? request_.engine.num_threads
                            : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    context_.emplace(OpContext{.device = compute_.device ? *compute_.device : host_,
                               .num_threads = threads,
                               .cancel = cancel_,
                               .stream = compute_.stream.get(),
                               .host = &host_});
    const std::size_t cache =
        compute_.device ? std::min(request_.engine.weight_cache_bytes, compute_.ceiling_bytes / 4)
                        : request_.engine.weight_cache_bytes;
    MINIACC_ASSIGN(Pipeline pipeline, Pipeline::open(request_.model, host_, precision_, cache));
    pipeline_.emplace(std::move(pipeline));
    pipeline_->set_vae_precision(vae_precision);
    for (const std::string& warning : pipeline_->warnings()) {
      note(warning);
    }
    MINIACC_RETURN_IF_ERROR(pipeline_->check_schedule(prepared_.schedule));
    if (compute_.card) {
      MINIACC_RETURN_IF_ERROR(pipeline_->stream_weights(compute_, {.num_threads = threads}));
    }
    presentation_.ids.assign(static_cast<std::size_t>(request_.num_text_tokens), 0);
    presentation_.tags.assign(presentation_.ids.size(), Modality::kText);
    plans_ = pipeline_->plan_stages(prepared_, presentation_);
    note("measuring what the device can do at its best");
    MINIACC_ASSIGN(ceilings_, measure_ceilings(*context_, precision_));
    return {};
  }

  /// Random values where the stage that makes them is left out.
  Tensor normal(const Shape& shape, std::uint32_t seed) {
    Tensor tensor = empty_tensor(host_, shape);
    std::mt19937 engine(seed);
    std::normal_distribution<float> values;
    for (float& value : tensor.f32()) {
      value = values(engine);
    }
    return tensor;
  }

  Status run_once(int run) {
    const auto seed = static_cast<std::uint32_t>(run + 1);
    prepared_.request.seed = seed;
    JobProgress progress({{kTextStage, wanted("text") ? 0.1 : 0.0},
                          {kDenoiseStage, wanted("denoise") ? 0.7 : 0.0},
                          {kAudioStage, wanted("audio") ? 0.05 : 0.0},
                          {kVideoStage, wanted("video") ? 0.15 : 0.0},
                          {kSaveStage, wanted("save") ? 0.01 : 0.0}},
                         events_);
    const double begin = now_seconds();
    MINIACC_ASSIGN(const Tensor hidden, text(seed, progress));
    MINIACC_ASSIGN(const ClipLatents latents, denoise(seed, hidden, run, progress));
    MINIACC_RETURN_IF_ERROR(decode(latents, progress));
    if (run == 0) {
      return {};
    }
    total_.seconds.push_back(now_seconds() - begin);
    for (const StageReport& stage : progress.stages()) {
      times_[stage.name].seconds.push_back(stage.seconds);
    }
    return {};
  }

  Result<Tensor> text(std::uint32_t seed, JobProgress& progress) {
    if (!wanted("text")) {
      return wanted("denoise")
                 ? normal({request_.num_text_tokens, pipeline_->dit_config().text_dim}, seed)
                 : Tensor();
    }
    std::mt19937 engine(seed);
    std::uniform_int_distribution<std::int32_t> tokens(
        0, static_cast<std::int32_t>(pipeline_->text_config().vocab_size) - 1);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(request_.num_text_tokens));
    std::ranges::generate(ids, [&] { return tokens(engine); });
    return pipeline_->encode_text(*context_, ids, progress);
  }

  Result<ClipLatents> denoise(std::uint32_t seed, const Tensor& hidden, int run,
                              JobProgress& progress) {
    const ClipGeometry& g = prepared_.geometry;
    if (wanted("denoise")) {
      std::vector<double> steps;
      MINIACC_ASSIGN(ClipLatents latents,
                     pipeline_->denoise(*context_, prepared_, hidden.view(), progress, steps));
      if (run > 0) {
        steps_.resize(steps.size());
        for (std::size_t i = 0; i < steps.size(); ++i) {
          steps_[i].seconds.push_back(steps[i]);
        }
      }
      return latents;
    }
    if (!wanted("audio") && !wanted("video")) {
      return ClipLatents{};
    }
    return ClipLatents{
        normal({pipeline_->video_config().latent_channels, g.latent_frames, g.latent_height,
                g.latent_width},
               seed),
        normal({2, pipeline_->audio_config().latent_channels, g.audio_latents}, seed + 1)};
  }

  Status decode(const ClipLatents& latents, JobProgress& progress) {
    std::unique_ptr<VideoWriter> writer;
    const ScratchFolder folder;
    if (wanted("save")) {
      if (folder.path().empty()) {
        return fail(ErrorCode::kIo, "cannot make a temporary folder for the clip of the benchmark");
      }
      VideoWriterOptions options;
      options.width = static_cast<int>(prepared_.geometry.width);
      options.height = static_cast<int>(prepared_.geometry.height);
      options.cancel = cancel_;
      options.audio_sample_rate_hz = wanted("audio") ? options.audio_sample_rate_hz : 0;
      MINIACC_ASSIGN(writer, VideoWriter::create(folder.path() / "bench.mp4", options));
    }
    if (wanted("audio")) {
      MINIACC_ASSIGN(const Tensor sound, pipeline_->decode_audio(*context_, latents, progress));
      if (writer) {
        MINIACC_RETURN_IF_ERROR(
            writer->write_audio(fit_audio(sound.f32(), prepared_.geometry.num_frames)));
      }
    }
    if (!wanted("video")) {
      return {};
    }
    const auto sink = [&](const video_vae::FrameBatch& batch) -> Status {
      if (!writer) {
        return {};
      }
      return writer->write_frames(
          {batch.rgb.as<std::uint8_t>(), static_cast<std::size_t>(batch.rgb.num_elements())});
    };
    MINIACC_RETURN_IF_ERROR(pipeline_->decode_video(*context_, latents, sink, progress));
    if (writer) {
      progress.begin(kSaveStage, 1);
      MINIACC_RETURN_IF_ERROR(writer->finish());
      progress.end();
      progress.move_seconds(kVideoStage, kSaveStage, pipeline_->frame_wait_seconds());
    }
    return {};
  }

  [[nodiscard]] const StagePlan* plan_of(const std::string& stage) const {
    const auto found =
        std::ranges::find_if(plans_, [&](const StagePlan& plan) { return plan.name == stage; });
    return found == plans_.end() ? nullptr : &*found;
  }

  Result<ToolReport> report() {
    const ClipGeometry& g = prepared_.geometry;
    const bool on_gpu = compute_.device != nullptr;
    Json document = {{"engine", version()},
                     {"date", fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)))},
                     {"device", compute_.note.empty() ? "cpu" : compute_.note},
                     {"model", request_.model.folder.string()},
                     {"checkpoint", pipeline_->identity()},
                     {"precision", request_.engine.precision},
                     {"vae_precision", request_.engine.vae_precision},
                     {"width", g.width},
                     {"height", g.height},
                     {"frames", g.num_frames},
                     {"text_tokens", request_.num_text_tokens},
                     {"recipe", prepared_.request.sampling.recipe},
                     {"threads", context_->num_threads},
                     {"runs", request_.runs},
                     {"ceilings",
                      {{"operations_per_second", ceilings_.operations_per_second},
                       {"copy_bytes_per_second", ceilings_.copy_bytes_per_second},
                       {"upload_bytes_per_second", ceilings_.upload_bytes_per_second}}},
                     {"peak_device_bytes", on_gpu ? compute_.card->peak_bytes() : 0},
                     {"device_ceiling_bytes", compute_.ceiling_bytes},
                     {"peak_resident_bytes", peak_resident_bytes()},
                     {"stages", Json::array()},
                     {"steps", Json::array()},
                     {"total", total_.json()}};
    std::string text = fmt::format(
        "{} · {}x{}, {} frames, {} text tokens, {} · {} on {}\n"
        "{} runs after one that is not counted; ceilings measured in this run: {:.1f} Top/s, "
        "copy {:.0f} GB/s, upload {:.1f} GB/s\n"
        "{:<18} {:>9} {:>9} {:>9} {:>9} {:>8}\n",
        request_.model.folder.string(), g.width, g.height, g.num_frames, request_.num_text_tokens,
        prepared_.request.sampling.recipe, request_.engine.precision,
        compute_.note.empty() ? "the CPU" : compute_.note, request_.runs,
        ceilings_.operations_per_second * 1e-12, ceilings_.copy_bytes_per_second * 1e-9,
        ceilings_.upload_bytes_per_second * 1e-9, "stage", "median s", "min", "max", "Top/s",
        "of best");
    const auto line = [&](const std::string& name, const Times& times, double flops) {
      const double rate = times.median() > 0.0 ? flops / times.median() : 0.0;
      const double share =
          ceilings_.operations_per_second > 0.0 ? rate / ceilings_.operations_per_second : 0.0;
      text += fmt::format("{:<18} {:>9.3f} {:>9.3f} {:>9.3f} {:>9} {:>8}\n", name, times.median(),
                          times.min(), times.max(),
                          flops > 0.0 ? fmt::format("{:.2f}", rate * 1e-12) : "",
                          flops > 0.0 ? fmt::format("{:.0f} %", share * 100.0) : "");
      Json entry = times.json();
      entry["name"] = name;
      entry["operations"] = flops;
      entry["operations_per_second"] = rate;
      return entry;
    };
    for (const StageName& stage : kStages) {
      const auto found = times_.find(stage.stage);
      if (found == times_.end()) {
        continue;
      }
      const StagePlan* plan = plan_of(stage.stage);
      Json entry = line(stage.stage, found->second, plan == nullptr ? 0.0 : plan->flops);
      if (plan != nullptr) {
        entry["streamed_bytes"] = plan->streamed_bytes;
      }
      document["stages"].push_back(std::move(entry));
      if (std::string_view(stage.flag) == "denoise" && plan != nullptr && !steps_.empty()) {
        for (std::size_t i = 0; i < steps_.size(); ++i) {
          document["steps"].push_back(line(fmt::format("  forward {}", i + 1), steps_[i],
                                           plan->flops / static_cast<double>(steps_.size())));
        }
      }
    }
    line("whole request", total_, 0.0);
    document["streams"] = Json::array();
    for (const StreamReport& stream : pipeline_->stream_reports()) {
      text += stream_report_text(stream) + "\n";
      document["streams"].push_back(stream_report_json(stream));
    }
    text += on_gpu ? fmt::format(
                         "device memory: {:.2f} GiB at most, of {:.2f} allowed; host {:.2f} GiB",
                         static_cast<double>(compute_.card->peak_bytes()) / kGiB,
                         static_cast<double>(compute_.ceiling_bytes) / kGiB,
                         static_cast<double>(peak_resident_bytes()) / kGiB)
                   : fmt::format("resident memory: {:.2f} GiB at most",
                                 static_cast<double>(peak_resident_bytes()) / kGiB);
    return ToolReport{.text = std::move(text),
                      .json = document.dump(-1, ' ', false, Json::error_handler_t::replace),
                      .problems = {}};
  }

  BenchRequest request_;
  const EventSink& events_;
  const CancelToken* cancel_;
  CpuDevice host_;
  ComputeDevice compute_;
  std::optional<OpContext> context_;
  PreparedRequest prepared_;
  Precision precision_ = Precision::kF32;
  std::optional<Pipeline> pipeline_;
  Presentation presentation_;
  std::vector<StagePlan> plans_;
  Ceilings ceilings_;
  std::map<std::string, Times> times_;
  std::vector<Times> steps_;
  Times total_;
};

/// Medians of a report's stages, steps and total by name.
std::vector<std::pair<std::string, double>> medians(const Json& report) {
  std::vector<std::pair<std::string, double>> found;
  for (const char* list : {"stages", "steps"}) {
    for (const Json& entry : report.at(list)) {
      found.emplace_back(entry.at("name").get<std::string>(), entry.at("median_s").get<double>());
    }
  }
  found.emplace_back("whole request", report.at("total").at("median_s").get<double>());
  return found;
}

/// The same benchmark under several limits of device memory, compared with the last.
Result<ToolReport> compare_limits(const BenchRequest& request, const EventSink& events,
                                  const CancelToken& cancel) {
  Json arms = Json::array();
  ToolReport all;
  for (const std::size_t bytes : request.compare_vram_bytes) {
    BenchRequest arm = request;
    arm.engine.vram_bytes = bytes;
    MINIACC_ASSIGN(const ToolReport report, Bench(arm, events, cancel).run());
    all.text += report.text + "\n\n";
    arms.push_back(Json::parse(report.json));
  }
  const auto last = medians(arms.back());
  all.text += fmt::format("{:<18}", "times the last arm");
  for (const Json& arm : arms) {
    all.text += fmt::format(
        " {:>9}", fmt::format("{:.1f} GiB", arm.at("device_ceiling_bytes").get<double>() / kGiB));
  }
  for (std::size_t i = 0; i < last.size(); ++i) {
    all.text += fmt::format("\n{:<18}", last[i].first);
    for (Json& arm : arms) {
      const auto own = medians(arm);
      MINIACC_REQUIRE(own.size() == last.size() && own[i].first == last[i].first,
                      "bench: arms of one workload");
      const double ratio = last[i].second > 0.0 ? own[i].second / last[i].second : 0.0;
      arm["of_last"][own[i].first] = ratio;
      all.text += fmt::format(" {:>9.3f}", ratio);
    }
  }
  all.json = Json{{"arms", arms}}.dump(-1, ' ', false, Json::error_handler_t::replace);
  return all;
}

}  // namespace

Result<ToolReport> run_bench(const BenchRequest& request, const EventSink& events,
                             const CancelToken& cancel) {
  return guarded([&] {
    return request.compare_vram_bytes.empty() ? Bench(request, events, cancel).run()
                                              : compare_limits(request, events, cancel);
  });
}

}  // namespace miniacc
