#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <new>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "api/guarded.h"
#include "core/build_config.h"
#include "core/error.h"
#include "device/cpu_device.h"
#include "device/device_error.h"
#include "io/media/audio_samples.h"
#include "io/media/video_writer.h"
#include "miniacc/miniacc.h"
#include "model/audio_vae/sound_check.h"
#include "model/dit/block.h"
#include "runtime/adapter_wishes.h"
#include "runtime/compute_device.h"
#include "runtime/job_plan.h"
#include "runtime/job_progress.h"
#include "runtime/latents_file.h"
#include "runtime/pipeline.h"
#include "runtime/process_memory.h"
#include "runtime/request.h"

namespace miniacc {
namespace {

// Weights of stages whose work is not arithmetic, as shares of the arithmetic of the whole job.
constexpr double kLoadShare = 0.01;
constexpr double kSaveShare = 0.02;
constexpr double kInputShare = 0.01;

int thread_count(int wanted) {
  return wanted > 0 ? wanted : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

/// What the CPU kernels choose by.
const char* cpu_vectors() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512f") ? "cpu avx512"
         : __builtin_cpu_supports("avx2")  ? "cpu avx2"
                                           : "cpu sse2";
#else
  return "cpu";
#endif
}

std::string lora_note(const LoraReport& report) {
  const std::string scale = report.min_scale == report.max_scale
                                ? fmt::format("{:g}", report.min_scale)
                                : fmt::format("{:g} to {:g}", report.min_scale, report.max_scale);
  const std::string ranks = report.min_rank == report.max_rank
                                ? fmt::format("{}", report.max_rank)
                                : fmt::format("{} to {}", report.min_rank, report.max_rank);
  std::string note = fmt::format(
      "adapter {}: {} names, {} changes, rank {}, alpha / rank {} ({}), strength {:g}, {}; "
      "tensors: "
      "{} matched, {} unmatched, {} rejected",
      report.path.string(), report.family, report.num_modules, ranks, scale, report.alpha_source,
      report.strength, report.mode == "side" ? "side products" : "merged", report.matched,
      report.unmatched, report.rejected);
  if (report.other_half > 0) {
    note += fmt::format(", {} for the other half", report.other_half);
  }
  if (report.projected > 0) {
    note += fmt::format("; {} AdaLN changes carried over to the curve table", report.projected);
  }
  if (report.head_steps > 0) {
    note += fmt::format("; output heads for {} intervals", report.head_steps);
  }
  return note;
}

/// What the file says about itself: the request, and what else decides the result.
std::string metadata_json(const PreparedRequest& prepared, const EngineOptions& options,
                          const Pipeline& pipeline, std::int64_t num_forwards, bool on_gpu,
                          const std::string& attention) {
  nlohmann::json document = {{"engine", version()},
                             {"checkpoint", pipeline.identity()},
                             {"precision", options.precision},
                             {"vae_precision", options.vae_precision},
                             {"device", on_gpu ? "cuda" : "cpu"},
                             {"forwards", num_forwards},
                             {"request", nlohmann::json::parse(request_to_json(prepared.request))}};
  if (!attention.empty()) {
    document["attention"] = attention;
  }
  if (!pipeline.lora_reports().empty()) {
    document["loras"] = nlohmann::json::parse(lora_reports_to_json(pipeline.lora_reports()));
  }
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// The hashes of what was read, in the request that goes into the clip.
void store_hashes(const std::vector<Condition>& conditions, GenerateRequest& request) {
  std::size_t reference = 0;
  for (const Condition& condition : conditions) {
    InputFile& file = condition.role == ConditionRole::kFirstFrame ? request.init_image
                      : condition.role == ConditionRole::kLastFrame
                          ? request.end_image
                          : request.references.at(reference++).file;
    file.sha256 = condition.file.sha256;
  }
}

/// What a job reads stays as it is, --overwrite or not.
Status check_inputs_stay(const GenerateRequest& request) {
  std::vector<std::filesystem::path> inputs = {
      request.init_image.path,   request.end_image.path,     request.adaln_base,
      request.model.transformer, request.model.text_encoder, request.model.tokenizer,
      request.model.video_vae,   request.model.audio_vae};
  for (const ReferenceInput& reference : request.references) {
    inputs.push_back(reference.file.path);
  }
  for (const LoraRequest& lora : request.loras) {
    inputs.push_back(lora.path);
  }
  for (const std::filesystem::path& output : {request.output, request.save_latents}) {
    for (const std::filesystem::path& input : inputs) {
      std::error_code ignored;
      if (!output.empty() && !input.empty() &&
          std::filesystem::equivalent(output, input, ignored)) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("{} is an input of this job and would be overwritten; write to "
                                "another name",
                                input.string()));
      }
    }
  }
  return {};
}

/// One job. Stages run in order; each leaves what the next one reads.
class Job {
 public:
  Job(const EngineOptions& options, const EventSink& events, const CancelToken& cancel)
      : options_(options),
        progress_({{kLoadStage, kLoadShare},
                   {kInputStage, 0.0},
                   {kConditionStage, 0.0},
                   {kVisionStage, 0.0},
                   {kTextStage, 0.0},
                   {kDenoiseStage, 0.0},
                   {kAudioStage, 0.0},
                   {kVideoStage, 0.0},
                   {kSaveStage, kSaveShare}},
                  events),
        num_threads_(thread_count(options.num_threads)),
        cancel_(&cancel) {}

  Result<GenerateResult> run(const GenerateRequest& given) {
    Result<GenerateResult> result = fail(ErrorCode::kInternal, "the job did not run");
    try {
      result = run_stages(given);
    } catch (const ErrorException& error) {  // running out of memory inside a stage, cancelling
      result = tl::unexpected(error.error());
    }
    const bool planned =
        !result && result.error().message.find("what would fit") != std::string::npos;
    if (!result && !planned && compute_.device && result.error().code == ErrorCode::kOutOfMemory) {
      result.error().message += advice();
    }
    return result;
  }

 private:
  /// What helps where device memory did not suffice.
  [[nodiscard]] std::string advice() const {
    return fmt::format(
        "; of CUDA memory this job may hold {} bytes: raise --vram, make the clip smaller or "
        "shorter, or use --device cpu",
        compute_.ceiling_bytes);
  }

  Result<GenerateResult> run_stages(const GenerateRequest& given) {
    GenerateRequest request = given;
    if (!given.resume_latents.empty()) {
      MINIACC_ASSIGN(request, request_of_latents(given));
    }
    MINIACC_RETURN_IF_ERROR(prepare(request));
    ClipLatents latents;
    if (request.resume_latents.empty()) {
      MINIACC_ASSIGN(latents, sample());
    } else {
      MINIACC_ASSIGN(latents, load_latents(request.resume_latents, device_));
    }
    MINIACC_RETURN_IF_ERROR(pipeline_->check_latents(latents, prepared_.geometry));
    if (!request.save_latents.empty()) {
      MINIACC_RETURN_IF_ERROR(
          save_latents(request.save_latents, latents, request_to_json(prepared_.request)));
    }
    // From here on hours of sampling may be at stake: on any error the latents stay.
    if (const Status status = decode_keeping_errors(latents); !status) {
      return tl::unexpected(with_latents_kept(status.error(), latents));
    }
    return finish();
  }

  /// What made the latents, with this job's output and, where it names one, its model: the clip
  /// must not claim another prompt or seed than the one it shows.
  static Result<GenerateRequest> request_of_latents(const GenerateRequest& given) {
    MINIACC_ASSIGN(GenerateRequest request, load_latents_request(given.resume_latents));
    const GenerateRequest untouched;
    const auto contradicts = [&](const auto& field) {
      return given.*field != untouched.*field && given.*field != request.*field;
    };
    if (!given.init_image.empty() || !given.end_image.empty() || !given.references.empty()) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("{} holds finished latents: pictures, videos and sounds change nothing "
                      "in them, leave them out",
                      given.resume_latents.string()));
    }
    if (contradicts(&GenerateRequest::prompt) || contradicts(&GenerateRequest::seed) ||
        contradicts(&GenerateRequest::width) || contradicts(&GenerateRequest::height) ||
        contradicts(&GenerateRequest::num_frames)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} was made from another request ({}x{}, {} frames, seed {}); leave "
                              "prompt, sizes and seed out, the file has them",
                              given.resume_latents.string(), request.width, request.height,
                              request.num_frames, request.seed));
    }
    const ModelPaths& model = given.model;
    for (const auto& part : {model.folder, model.transformer, model.text_encoder, model.tokenizer,
                             model.video_vae, model.audio_vae}) {
      if (!part.empty()) {
        request.model = model;
      }
    }
    request.output = given.output;
    request.overwrite = given.overwrite;
    request.write_metadata = given.write_metadata;
    request.save_latents = given.save_latents;
    request.resume_latents = given.resume_latents;
    return request;
  }

  Status prepare(const GenerateRequest& given) {
    GenerateRequest request = given;
    MINIACC_ASSIGN(AdapterWishes wishes, apply_adapter_wishes(request));
    MINIACC_ASSIGN(prepared_, prepare_request(request));
    MINIACC_ASSIGN(precision_, parse_precision(options_.precision));
    MINIACC_ASSIGN(const auto vae_precision, parse_vae_precision(options_.vae_precision));
    MINIACC_ASSIGN(has_frames_, VideoWriter::path_has_frames(request.output));
    progress_.begin(kLoadStage, 1);
    for (const std::string& note : wishes.notes) {
      progress_.note(note);
    }
    for (const std::string& warning : wishes.warnings) {
      progress_.warning(warning);
    }
    for (const std::string& note : prepared_.notes) {
      progress_.note(note);
    }
    MINIACC_RETURN_IF_ERROR(check_inputs_stay(request));
    // The output's name is reserved first: a folder that cannot be written is known at once.
    MINIACC_RETURN_IF_ERROR(check_output());
    if (!request.save_latents.empty()) {
      MINIACC_RETURN_IF_ERROR(
          check_latents_target(request.save_latents, request.output, request.overwrite));
    }
    MINIACC_RETURN_IF_ERROR(open_device());
    auto pipeline =
        Pipeline::open(request.model, device_, precision_, weight_cache_bytes(), prepared_.task);
    if (!pipeline) {
      return tl::unexpected(std::move(pipeline).error());
    }
    pipeline_.emplace(*std::move(pipeline));
    pipeline_->set_vae_precision(vae_precision);
    MINIACC_RETURN_IF_ERROR(pipeline_->check_conditions(prepared_));
    MINIACC_RETURN_IF_ERROR(choose_attention());
    MINIACC_RETURN_IF_ERROR(pipeline_->add_loras({.loras = request.loras,
                                                  .allow_partial = request.lora_allow_partial,
                                                  .mode = request.lora_mode,
                                                  .adaln_base = request.adaln_base,
                                                  .half = request.model.half,
                                                  .identities = std::move(wishes.identities),
                                                  .num_threads = num_threads_}));
    MINIACC_RETURN_IF_ERROR(pipeline_->check_schedule(prepared_.schedule));
    open_cache();
    if (compute_.card) {
      MINIACC_RETURN_IF_ERROR(pipeline_->stream_weights(compute_, {.num_threads = num_threads_}));
    }
    for (const LoraReport& report : pipeline_->lora_reports()) {
      progress_.note(lora_note(report));
    }
    for (const std::string& warning : pipeline_->warnings()) {
      progress_.warning(warning);
    }
    MINIACC_ASSIGN(presentation_, pipeline_->present(prepared_));
    if (request.prompt.empty() && presentation_.blocks.empty()) {
      progress_.note("the prompt is empty: one pad token stands for it, as in the reference ports");
    }
    if (compute_.card) {
      MINIACC_ASSIGN(const DevicePlan plan,
                     pipeline_->plan_device(prepared_, presentation_, {}, compute_.ceiling_bytes));
      planned_device_bytes_ = plan.peak_bytes();
    }
    plan_progress();
    progress_.end();
    return read_inputs();
  }

  /// Weighs the stages by what they compute.
  void plan_progress() {
    double total = 0.0;
    const std::vector<StagePlan> stages = pipeline_->plan_stages(prepared_, presentation_);
    const auto is_run = [&](const StagePlan& stage) {
      return has_frames_ || stage.name != kVideoStage;
    };
    for (const StagePlan& stage : stages) {
      total += is_run(stage) ? stage.flops : 0.0;
    }
    for (const StagePlan& stage : stages) {
      progress_.set_cost(stage.name, is_run(stage) ? stage.flops / total : 0.0);
    }
    progress_.set_cost(kInputStage, prepared_.conditions.empty() ? 0.0 : kInputShare);
  }

  /// Decodes what the clip is conditioned on: a damaged file is known before any weight is read.
  Status read_inputs() {
    std::vector<Condition>& conditions = prepared_.conditions;
    if (conditions.empty()) {
      return {};
    }
    const auto count = static_cast<std::int64_t>(conditions.size());
    progress_.begin(kInputStage, count);
    for (std::int64_t i = 0; i < count; ++i) {
      context_->check_cancelled();
      std::vector<std::string> notes;
      MINIACC_ASSIGN(media_.emplace_back(),
                     read_condition(conditions[static_cast<std::size_t>(i)], prepared_.request,
                                    prepared_.geometry, prepared_.rules, notes));
      for (const std::string& note : notes) {
        progress_.note(note);
      }
      progress_.update(i + 1, static_cast<double>(i + 1) / static_cast<double>(count));
    }
    // Headers may promise other lengths than the files hold.
    MINIACC_ASSIGN(presentation_, pipeline_->present(prepared_));
    store_hashes(conditions, prepared_.request);
    progress_.end();
    return {};
  }

  Status open_device() {
    MINIACC_ASSIGN(const DeviceChoice choice, parse_device(options_.device));
    MINIACC_ASSIGN(compute_, open_compute_device(choice, options_.vram_bytes));
    if (!compute_.note.empty()) {
      progress_.note(compute_.note);
    }
    context_.emplace(OpContext{.device = compute_.device ? *compute_.device : device_,
                               .num_threads = num_threads_,
                               .cancel = cancel_,
                               .stream = compute_.stream.get(),
                               .host = &device_});
    return {};
  }

  /// Checks that the device's attention takes the transformer's heads, and keeps its name.
  Status choose_attention() {
    if (!prepared_.request.resume_latents.empty()) {
      return {};  // nothing attends
    }
    const DeviceId device = context_->device.id();
    const Precision attention = prepared_.attention.value_or(default_attention(precision_));
    MINIACC_ASSIGN(attention_form_, pipeline_->attention_form(attention, device));
    return {};
  }

  /// Kept layers lie in device memory; most of it is for the layer and activations in hand.
  [[nodiscard]] std::size_t weight_cache_bytes() const {
    return compute_.device ? std::min(options_.weight_cache_bytes, compute_.ceiling_bytes / 4)
                           : options_.weight_cache_bytes;
  }

  /// Opens the writer once to learn about an output that cannot be written; the clip itself is
  /// written by a second one, which knows the metadata.
  Status check_output() {
    MINIACC_ASSIGN(const auto writer,
                   VideoWriter::create(prepared_.request.output, writer_options()));
    return {};
  }

  [[nodiscard]] VideoWriterOptions writer_options() const {
    VideoWriterOptions options;
    options.width = static_cast<int>(prepared_.geometry.width);
    options.height = static_cast<int>(prepared_.geometry.height);
    options.overwrite = prepared_.request.overwrite;
    options.cancel = cancel_;
    return options;
  }

  Result<ClipLatents> sample() {
    ConditionLatents conditions;
    if (!prepared_.conditions.empty()) {
      MINIACC_ASSIGN(conditions,
                     pipeline_->encode_conditions(*context_, prepared_, media_, progress_));
    }
    MINIACC_ASSIGN(const Tensor hidden, text_hidden());
    return pipeline_->denoise(*context_, prepared_, hidden.view(), progress_, step_seconds_,
                              presentation_.tags, conditions);
  }

  /// The encoded prompt, from the cache where it is there: then its pictures are not looked at.
  Result<Tensor> text_hidden() {
    const std::string key = pipeline_->text_key(presentation_, media_);
    if (auto cached = pipeline_->cached_text(key, progress_)) {
      media_.clear();
      progress_.begin(kTextStage, 1);
      progress_.note("the encoded prompt is from the cache");
      progress_.end();
      return *std::move(cached);
    }
    std::vector<VisionFeatures> features;
    if (!prepared_.conditions.empty()) {
      MINIACC_ASSIGN(features, pipeline_->run_vision(*context_, presentation_, media_, progress_));
    }
    media_.clear();
    MINIACC_ASSIGN(Tensor hidden,
                   pipeline_->encode_text(*context_, presentation_, features, progress_));
    pipeline_->keep_text(key, hidden, progress_);
    return hidden;
  }

  /// Opens the cache; one that cannot be used is a warning.
  void open_cache() {
    if (options_.cache_dir.empty()) {
      return;
    }
    auto cache = TensorCache::open(options_.cache_dir, options_.cache_bytes);
    if (!cache) {
      progress_.warning(fmt::format("nothing is cached: {}", cache.error().message));
      return;
    }
    // Another build or another device may round otherwise.
    std::error_code ignored;
    const auto built = std::filesystem::last_write_time("/proc/self/exe", ignored);
    pipeline_->set_cache(*std::move(cache),
                         fmt::format("{} {} {}", version(), built.time_since_epoch().count(),
                                     compute_.card ? compute_.model : cpu_vectors()));
  }

  /// decode(), with exceptions of the stages turned into errors, so that the latents can be kept.
  Status decode_keeping_errors(const ClipLatents& latents) {
    try {
      return decode(latents);
    } catch (const ErrorException& error) {
      return tl::unexpected(error.error());
    } catch (const DeviceError& error) {
      return fail(ErrorCode::kInternal, fmt::format("the GPU failed: {}", error.what()));
    } catch (const std::bad_alloc&) {
      return fail(ErrorCode::kOutOfMemory, "the system ran out of memory while decoding");
    }
  }

  Status decode(const ClipLatents& latents) {
    VideoWriterOptions options = writer_options();
    if (prepared_.request.write_metadata) {
      options.metadata["miniacc"] = metadata_json(prepared_, options_, *pipeline_, num_forwards(),
                                                  compute_.device != nullptr, attention_form_);
      options.metadata["title"] = prepared_.request.prompt;
    }
    MINIACC_ASSIGN(const auto writer, VideoWriter::create(prepared_.request.output, options));
    MINIACC_RETURN_IF_ERROR(
        write_sound(*writer, pipeline_->decode_audio(*context_, latents, progress_)));
    if (has_frames_) {
      const auto sink = [&](const video_vae::FrameBatch& batch) {
        return writer->write_frames(
            {batch.rgb.as<std::uint8_t>(), static_cast<std::size_t>(batch.rgb.num_elements())});
      };
      MINIACC_RETURN_IF_ERROR(pipeline_->decode_video(*context_, latents, sink, progress_));
    }
    progress_.begin(kSaveStage, 1);
    MINIACC_RETURN_IF_ERROR(writer->finish());
    progress_.end();
    if (has_frames_) {
      progress_.move_seconds(kVideoStage, kSaveStage, pipeline_->frame_wait_seconds());
    }
    return {};
  }

  /// Sound that decodes to NaN must not cost the picture: it becomes silence, said aloud.
  Status write_sound(VideoWriter& writer, const Result<Tensor>& sound) {
    std::vector<float> samples;
    if (sound) {
      samples = fit_audio(sound->f32(), prepared_.geometry.num_frames);
      if (audio_vae::check_sound(sound->view()).state == audio_vae::SoundState::kFlat) {
        progress_.warning("the decoded sound is one constant value: nothing can be heard");
        audio_state_ = "flat";
      }
    } else if (sound.error().code == ErrorCode::kInternal) {
      progress_.warning(sound.error().message + "; the clip gets a silent track");
      samples.assign(
          2 * static_cast<std::size_t>(samples_for_frames(prepared_.geometry.num_frames)), 0.0F);
      audio_state_ = "failed";
    } else {
      return tl::unexpected(sound.error());
    }
    return writer.write_audio(samples);
  }

  Error with_latents_kept(Error error, const ClipLatents& latents) const {
    if (!prepared_.request.resume_latents.empty() || !prepared_.request.save_latents.empty()) {
      return error;  // they are in a file already
    }
    std::filesystem::path path = prepared_.request.output;
    if (!path.has_filename()) {
      path = path.parent_path();  // "frames/" -> "frames"
    }
    const std::string stem = path.string();
    path = stem + ".latents.safetensors";
    std::error_code ignored;
    for (int i = 1; std::filesystem::exists(path, ignored); ++i) {
      path = fmt::format("{}.latents-{}.safetensors", stem, i);  // another run's are worth as much
    }
    const Status saved = save_latents(path, latents, request_to_json(prepared_.request));
    error.message +=
        saved ? fmt::format("; the latents are kept in {}, --resume-latents decodes them",
                            path.string())
              : fmt::format("; the latents could not be kept either: {}", saved.error().message);
    return error;
  }

  [[nodiscard]] std::int64_t num_forwards() const {
    return static_cast<std::int64_t>(step_seconds_.size());
  }

  GenerateResult finish() {
    GenerateResult result;
    result.output = prepared_.request.output;
    result.request = prepared_.request;
    result.num_forwards = num_forwards();
    result.step_seconds = step_seconds_;
    result.num_text_tokens = static_cast<std::int64_t>(presentation_.ids.size());
    result.attention = attention_form_;
    result.audio = audio_state_;
    result.stages = progress_.stages();
    result.seconds = progress_.elapsed_seconds();
    result.peak_resident_bytes = miniacc::peak_resident_bytes();
    if (compute_.card) {
      result.planned_device_bytes = planned_device_bytes_;
      result.peak_device_bytes = compute_.card->peak_bytes();
    }
    nlohmann::json streams = nlohmann::json::array();
    try {
      for (const StreamReport& report : pipeline_->stream_reports()) {
        streams.push_back(stream_report_json(report));
      }
    } catch (const DeviceError& error) {  // the clip is finished all the same
      progress_.warning(fmt::format("what streaming cost is not known: {}", error.what()));
    }
    result.streams = streams.dump();
    result.cache_hits = pipeline_->cache_hits();
    result.loras = pipeline_->lora_reports();
    result.warnings = progress_.warnings();
    return result;
  }

  EngineOptions options_;
  CpuDevice device_;
  JobProgress progress_;
  int num_threads_;
  const CancelToken* cancel_;
  ComputeDevice compute_;
  std::optional<OpContext> context_;  ///< from open_device() on
  PreparedRequest prepared_;
  Precision precision_ = Precision::kF32;
  bool has_frames_ = true;
  std::optional<Pipeline> pipeline_;
  Presentation presentation_;
  std::vector<ConditionMedia> media_;  ///< of each condition, until it is encoded
  std::vector<double> step_seconds_;
  std::string attention_form_;  ///< empty where latents are resumed
  std::string audio_state_ = "ok";
  std::size_t planned_device_bytes_ = 0;
};

/// How the prompt names a condition.
std::string prompt_label(const Condition& condition, std::array<int, 3>& counts) {
  std::vector<std::string> labels;
  if (condition.has_sound()) {
    labels.push_back(fmt::format("<Audio {}>", ++counts[2]));
  }
  if (condition.role == ConditionRole::kVideo) {
    labels.push_back(fmt::format("<Video {}>", ++counts[1]));
  } else if (condition.is_visual()) {
    labels.push_back(fmt::format("<Picture {}>", ++counts[0]));
  }
  return fmt::format("{}", fmt::join(labels, " "));
}

/// Device memory that a plan may count on; empty: the CPU computes. With a CUDA device and a limit
/// named no GPU need be there.
Result<std::optional<std::size_t>> planned_ceiling(const EngineOptions& options) {
  MINIACC_ASSIGN(const DeviceChoice choice, parse_device(options.device));
  if (choice.kind == DeviceChoice::Kind::kCuda && options.vram_bytes) {
    return options.vram_bytes;
  }
  auto compute = open_compute_device(choice, options.vram_bytes);
  if (!compute) {
    if (choice.kind == DeviceChoice::Kind::kCuda) {
      compute.error().message += "; --vram plans for a GPU that is not here";
    }
    return tl::unexpected(std::move(compute).error());
  }
  return compute->card ? std::optional(compute->ceiling_bytes) : std::nullopt;
}

Result<JobPlan> make_job_plan(const GenerateRequest& request, const EngineOptions& options,
                              std::vector<std::string>& warnings) {
  JobPlan plan;
  MINIACC_ASSIGN(const Precision precision, parse_precision(options.precision));
  MINIACC_ASSIGN(const auto vae_precision, parse_vae_precision(options.vae_precision));
  GenerateRequest completed = request;
  MINIACC_ASSIGN(const AdapterWishes wishes, apply_adapter_wishes(completed));
  MINIACC_RETURN_IF_ERROR(check_inputs_stay(completed));
  MINIACC_ASSIGN(plan.prepared, prepare_request(completed, {.needs_output = false}));
  const Precision attention = plan.prepared.attention.value_or(default_attention(precision));
  plan.precision = options.precision;
  plan.attention = precision_name(attention);
  plan.notes = wishes.notes;
  plan.notes.insert(plan.notes.end(), plan.prepared.notes.begin(), plan.prepared.notes.end());
  CpuDevice device;
  MINIACC_ASSIGN(Pipeline pipeline,
                 Pipeline::open_for_plan(request.model, device, precision,
                                         options.weight_cache_bytes, plan.prepared.task));
  pipeline.set_vae_precision(vae_precision);
  warnings = wishes.warnings;
  warnings.insert(warnings.end(), pipeline.warnings().begin(), pipeline.warnings().end());
  MINIACC_RETURN_IF_ERROR(pipeline.check_conditions(plan.prepared));
  MINIACC_RETURN_IF_ERROR(pipeline.attention_form(attention, device.id()));
  MINIACC_ASSIGN(const Presentation presentation, pipeline.present(plan.prepared));
  plan.num_text_tokens = static_cast<std::int64_t>(presentation.ids.size());
  plan.final_text = presentation.text;
  const std::vector<Condition>& conditions = plan.prepared.conditions;
  plan.sequence =
      pack_request(plan.prepared.task, conditions, presentation.tags, plan.prepared.geometry);
  std::array<int, 3> counts{};
  for (std::size_t i = 0; i < conditions.size(); ++i) {
    const Condition& condition = conditions[i];
    plan.shares.push_back(
        {.name = condition.name,
         .label = prompt_label(condition, counts),
         .text_tokens = presentation.rows_of_input.at(i),
         .packed_rows = (condition.is_visual() ? condition.latents().num_rows() : 0) +
                        2 * condition.num_audio_latents()});
  }
  plan.stages = pipeline.plan_stages(plan.prepared, presentation);
  MINIACC_ASSIGN(const std::optional<std::size_t> ceiling, planned_ceiling(options));
  if (ceiling) {
    MINIACC_ASSIGN(plan.device, pipeline.plan_device(plan.prepared, presentation, {}, *ceiling));
  }
  plan.flops_per_second = measure_flops_per_second(precision, thread_count(options.num_threads));
  return plan;
}

}  // namespace

Engine::Engine(EngineOptions options) : options_(std::move(options)) {}

Result<GenerateResult> Engine::generate(const GenerateRequest& request, const EventSink& events,
                                        const CancelToken& cancel) const {
  return guarded([&] { return Job(options_, events, cancel).run(request); });
}

Result<PlanReport> Engine::plan(const GenerateRequest& request) const {
  return guarded([&]() -> Result<PlanReport> {
    PlanReport report;
    MINIACC_ASSIGN(const JobPlan plan, make_job_plan(request, options_, report.warnings));
    report.text = job_plan_text(plan);
    report.json = job_plan_json(plan);
    return report;
  });
}

Result<std::int64_t> frames_for_seconds(double seconds) { return frames_of_seconds(seconds); }

Result<FrameSize> size_for_aspect(const std::string& aspect) {
  double width = 0.0;
  double height = 0.0;
  const char* end = aspect.data() + aspect.size();
  const auto [colon, width_error] = std::from_chars(aspect.data(), end, width);
  if (width_error == std::errc() && colon != end && *colon == ':') {
    const auto [rest, height_error] = std::from_chars(colon + 1, end, height);
    if (height_error == std::errc() && rest == end) {
      MINIACC_ASSIGN(const Canvas canvas, canvas_of_aspect(width, height));
      return FrameSize{canvas.width, canvas.height};
    }
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("the aspect ratio must be written like 16:9, got '{}'", aspect));
}

const char* version() {
  static const std::string text =
      fmt::format("{} ({}, {})", kVersion, kCommit, kHasCuda ? "cpu, cuda" : "cpu");
  return text.c_str();
}

}  // namespace miniacc
