// How a pipeline is opened, for work or for a plan, and what its stages take.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "checkpoint/model_half.h"
#include "checkpoint/size_table.h"
#include "checkpoint/synthetic_tokenizer.h"
#include "model/audio_vae/audio_encoder_config.h"
#include "model/video_vae/video_encoder_config.h"
#include "model/vision/vision_config.h"
#include "runtime/pipeline.h"

namespace miniacc {
namespace {

/// A folder under the system's temporary one that goes with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "miniacc-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) {
      path_ = name;
    }
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) {
      std::filesystem::remove_all(path_, ignored);
    }
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// The tokenizer given, or the made-up one of made-up models.
Result<Tokenizer> made_up_tokenizer(const std::filesystem::path& given,
                                    std::vector<std::string>& warnings) {
  if (!given.empty()) {
    return Tokenizer::open(given);
  }
  const TemporaryFolder folder;
  if (folder.path().empty()) {
    return fail(ErrorCode::kIo,
                "cannot make a temporary folder for the made-up tokenizer; name one "
                "with --tokenizer");
  }
  MINIACC_RETURN_IF_ERROR(write_synthetic_tokenizer(folder.path()));
  warnings.emplace_back(
      "the tokenizer is the made-up one of synthetic models: counts of text tokens are not those "
      "of "
      "MiniMax-H3; --tokenizer names the released one");
  return Tokenizer::open(folder.path());
}

}  // namespace

Result<Pipeline> Pipeline::open(const ModelPaths& model, Device& device, Precision precision,
                                std::size_t cache_budget_bytes, Task task) {
  return open_parts(model, device, precision, cache_budget_bytes, task, Purpose::kWork);
}

Result<Pipeline> Pipeline::open_for_plan(const ModelPaths& model, Device& device,
                                         Precision precision, std::size_t cache_budget_bytes,
                                         Task task) {
  return open_parts(model, device, precision, cache_budget_bytes, task, Purpose::kPlan);
}

Result<Pipeline> Pipeline::open_parts(const ModelPaths& model, Device& device, Precision precision,
                                      std::size_t cache_budget_bytes, Task task, Purpose purpose) {
  std::vector<std::string> warnings;
  MINIACC_ASSIGN(const auto made_up, parse_synthetic_folder(model.folder));
  ResolvedPaths paths;
  if (!made_up) {
    MINIACC_ASSIGN(paths, resolve_paths(model, task));
    MINIACC_RETURN_IF_ERROR(check_half(paths.transformer, model.half, task, warnings));
  }
  MINIACC_ASSIGN(Tokenizer tokenizer, made_up ? made_up_tokenizer(model.tokenizer, warnings)
                                              : Tokenizer::open(paths.tokenizer));
  Pipeline pipeline(std::move(tokenizer));
  pipeline.device_ = &device;
  pipeline.precision_ = precision;
  pipeline.cache_budget_bytes_ = cache_budget_bytes;
  const auto open = [&](const std::filesystem::path& path,
                        Component component) -> Result<std::unique_ptr<ComponentWeights>> {
    if (made_up) {
      return open_synthetic(*made_up, component);
    }
    if (purpose == Purpose::kWork) {
      return open_component(path, component);
    }
    bool from_config = false;
    auto opened = open_sizes(path, component, from_config);
    if (from_config) {
      warnings.push_back(fmt::format("{} holds no weights: the sizes of the released {} are used",
                                     path.string(), component_name(component)));
    }
    return opened;
  };
  MINIACC_ASSIGN(pipeline.text_encoder_, open(paths.text_encoder, Component::kTextEncoder));
  MINIACC_ASSIGN(pipeline.transformer_, open(paths.transformer, Component::kTransformer));
  MINIACC_ASSIGN(pipeline.video_vae_, open(paths.video_vae, Component::kVideoVae));
  MINIACC_ASSIGN(pipeline.audio_vae_, open(paths.audio_vae, Component::kAudioVae));
  MINIACC_RETURN_IF_ERROR(pipeline.read_configs());
  pipeline.warnings_.insert(pipeline.warnings_.end(), warnings.begin(), warnings.end());
  return pipeline;
}

Status Pipeline::stream_weights(ComputeDevice& compute, const StreamOptions& options) {
  MINIACC_REQUIRE(!streams_, "stream_weights: called twice");
  // What surrounds the layers of the released model takes 2.5 GB.
  constexpr std::size_t kMostKeptBytes = std::size_t{4} << 30;
  const std::size_t each =
      std::min(kMostKeptBytes, pinned_budget_bytes(options, 0) / 4 / kept_tensors_.size());
  for (auto& kept : kept_tensors_) {
    kept = std::make_unique<KeptTensors>(*compute.pinned, each, options.num_threads);
  }
  MINIACC_ASSIGN(streams_, make_weight_streams(compute, options));
  return {};
}

std::vector<StreamReport> Pipeline::stream_reports() const {
  return streams_ ? streams_->reports() : std::vector<StreamReport>();
}

Result<LayerSource*> Pipeline::stage_layers(const OpContext& ctx, StreamedStack which,
                                            LayerStack stack, const StagePlan& plan) const {
  if (!streams_ || ctx.device.id().kind != DeviceKind::kCuda) {
    return static_cast<LayerSource*>(nullptr);
  }
  StreamRequest request{.which = which,
                        .stack = std::move(stack),
                        .reserved_bytes = plan.reserved_bytes(),
                        .one_pass = which == StreamedStack::kTextEncoder};
  switch (which) {
    case StreamedStack::kTextEncoder:
      request.weights = text_encoder_.get();
      break;
    case StreamedStack::kTransformer:
      request.weights = &transformer();
      request.side_bytes = side_bytes();
      break;
    case StreamedStack::kVideoVae:
      request.weights = video_vae_.get();
      break;
  }
  return streams_->begin(request);
}

StageOptions Pipeline::stage_options(const PreparedRequest& prepared, DeviceKind device) const {
  return {.precision = precision_,
          .cache_budget_bytes = cache_budget_bytes_,
          .device = device,
          .attention = prepared.attention.value_or(default_attention(precision_))};
}

StagePlan Pipeline::condition_plan(const PreparedRequest& prepared) const {
  EncoderConfigs configs{.video_vae = video_config_, .video = {}, .audio = {}};
  if (auto video = video_vae::read_encoder_config(*video_vae_, video_config_)) {
    configs.video = *std::move(video);
  }
  if (auto audio = audio_vae::read_encoder_config(*audio_vae_, audio_config_)) {
    configs.audio = *std::move(audio);
  }
  return plan_condition_encoding(*video_vae_, *audio_vae_, configs, prepared.conditions);
}

Status Pipeline::reserve(const OpContext& ctx, const StagePlan& plan) const {
  return streams_ && ctx.device.id().kind == DeviceKind::kCuda
             ? streams_->reserve(plan.reserved_bytes())
             : Status();
}

std::string Pipeline::settings_that_fit(const PreparedRequest& prepared,
                                        const Presentation& presentation,
                                        std::size_t ceiling_bytes) const {
  constexpr double kMiB = 1024.0 * 1024.0;
  constexpr std::int64_t kFrameStep = 17;
  const auto needed = [&](const ClipGeometry& geometry, Precision precision) {
    PreparedRequest other = prepared;
    other.geometry = geometry;
    return smallest_ceiling(plan_stages(other, presentation, precision, DeviceKind::kCuda),
                            side_bytes());
  };
  const ClipGeometry& clip = prepared.geometry;
  std::vector<std::string> ways = {fmt::format(
      "--vram {:.0f}MiB", std::ceil(static_cast<double>(needed(clip, precision_)) / kMiB))};
  if (precision_ != Precision::kInt8 && needed(clip, Precision::kInt8) <= ceiling_bytes) {
    ways.emplace_back("--precision int8");
  }
  std::vector<std::string> notes;
  for (std::int64_t frames = clip.num_frames - kFrameStep; frames > 0; frames -= kFrameStep) {
    const auto shorter = fit_geometry(clip.width, clip.height, frames, notes);
    if (shorter && needed(*shorter, precision_) <= ceiling_bytes) {
      ways.push_back(fmt::format("--frames {}", shorter->num_frames));
      break;
    }
  }
  for (std::int64_t sixteenths = 14; sixteenths >= 4; sixteenths -= 2) {
    const auto smaller = fit_geometry(clip.width * sixteenths / 16, clip.height * sixteenths / 16,
                                      clip.num_frames, notes);
    if (smaller && needed(*smaller, precision_) <= ceiling_bytes) {
      ways.push_back(fmt::format("-W {} -H {}", smaller->width, smaller->height));
      break;
    }
  }
  return fmt::format("{}", fmt::join(ways, ", or "));
}

Result<DevicePlan> Pipeline::plan_device(const PreparedRequest& prepared,
                                         const Presentation& presentation,
                                         const StreamOptions& options,
                                         std::size_t ceiling_bytes) const {
  auto plan =
      miniacc::plan_device(plan_stages(prepared, presentation, precision_, DeviceKind::kCuda),
                           side_bytes(), options, ceiling_bytes);
  if (!plan) {
    plan.error().message += fmt::format("; what would fit: {}",
                                        settings_that_fit(prepared, presentation, ceiling_bytes));
  }
  return plan;
}

std::vector<StagePlan> Pipeline::plan_stages(const PreparedRequest& prepared,
                                             const Presentation& presentation) const {
  return plan_stages(prepared, presentation, precision_, DeviceKind::kCpu);
}

std::vector<StagePlan> Pipeline::plan_stages(const PreparedRequest& prepared,
                                             const Presentation& presentation, Precision precision,
                                             DeviceKind device) const {
  StageOptions options = stage_options(prepared, device);
  options.precision = precision;
  std::vector<StagePlan> stages;
  std::int64_t num_vision_tokens = 0;
  std::int64_t num_deepstack = 0;
  if (!prepared.conditions.empty()) {
    stages.push_back(condition_plan(prepared));
  }
  if (!presentation.blocks.empty()) {
    std::vector<VisionGrid> grids;
    for (const VisualBlock& block : presentation.blocks) {
      grids.push_back(block.grid);
      num_vision_tokens += block.grid.num_tokens();
    }
    if (const auto vision = read_vision_config(*text_encoder_)) {
      num_deepstack = static_cast<std::int64_t>(vision->deepstack_blocks.size());
      stages.push_back(plan_vision(*text_encoder_, *vision, options, grids));
    }
  }
  const PackedSequence sequence =
      pack_request(prepared.task, prepared.conditions, presentation.tags, prepared.geometry);
  std::set<float> times;
  for (std::size_t i = 0; i < prepared.schedule.num_forwards(); ++i) {
    times.merge([&] {
      const std::vector<float> step = sequence.distinct_times(1.0F - prepared.schedule.video[i],
                                                              1.0F - prepared.schedule.audio[i]);
      return std::set<float>(step.begin(), step.end());
    }());
  }
  if (prepared.request.resume_latents.empty()) {
    stages.push_back(plan_text_encoding(*text_encoder_, text_config_, options,
                                        static_cast<std::int64_t>(presentation.ids.size()),
                                        num_vision_tokens, num_deepstack));
    stages.push_back(plan_denoising(
        *transformer_, dit_config_, options,
        {.num_rows = sequence.num_rows(),
         .num_text_rows = sequence.text().count,
         .num_times = static_cast<std::int64_t>(times.size()),
         .num_forwards = static_cast<std::int64_t>(prepared.schedule.num_forwards())}));
  }
  stages.push_back(plan_audio_decoding(*audio_vae_, audio_config_, options, prepared.geometry));
  const StageOptions video{vae_precision(device), cache_budget_bytes_, device};
  stages.push_back(plan_video_decoding(*video_vae_, video_config_, video, prepared.geometry));
  return stages;
}

}  // namespace miniacc
