#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>

#include "adapters/adapted_weights.h"
#include "checkpoint/open_component.h"
#include "io/tokenizer.h"
#include "model/audio_vae/audio_vae_decoder.h"
#include "model/dit/dit.h"
#include "model/text_encoder/config.h"
#include "model/video_vae/video_vae_decoder.h"
#include "model/vision/vision_tower.h"
#include "runtime/condition_media.h"
#include "runtime/device_plan.h"
#include "runtime/device_weights.h"
#include "runtime/job_progress.h"
#include "runtime/lora_setup.h"
#include "runtime/presentation.h"
#include "runtime/request.h"
#include "runtime/sampler.h"
#include "runtime/stage_plan.h"
#include "runtime/tensor_cache.h"
#include "runtime/weight_streams.h"

namespace miniacc {

/// Where each part of a model is, after looking through the folder.
struct ResolvedPaths {
  std::filesystem::path transformer;
  std::filesystem::path text_encoder;
  std::filesystem::path tokenizer;
  std::filesystem::path video_vae;
  std::filesystem::path audio_vae;
};
/// kInvalidArgument names the part that was neither given nor found. Where a folder holds both
/// halves of the model, the task chooses.
[[nodiscard]] Result<ResolvedPaths> resolve_paths(const ModelPaths& model, Task task = Task::kT2va);

/// Refuses a task that belongs to the other half of the model, from what the user says
/// (`given_half`) or else from names around the file. A half that cannot be told is a warning.
[[nodiscard]] Status check_half(const std::filesystem::path& transformer,
                                const std::string& given_half, Task task,
                                std::vector<std::string>& warnings);

/// Clean latents of one clip, in the diffusion's normalised space.
struct ClipLatents {
  Tensor video;  ///< [channels, T, h, w] f32
  Tensor audio;  ///< [2, channels, A] f32, left and right
};

/// Latents of what a clip is conditioned on, clean, in packed order and the diffusion's space.
struct ConditionLatents {
  std::vector<Tensor> visual;  ///< of each condition with pixels [channels, t, h, w] f32
  std::vector<Tensor> audio;   ///< of each condition with sound [2, channels, A] f32
};

/// The four networks of one model, opened (headers and small tensors read), run stage by stage.
/// Each stage reads its weights as it needs them and gives them back at its end. A stage computes
/// on the device of its context; what stages hand on lies in host memory.
class Pipeline {
 public:
  /// Opens every component and checks that they belong together: widths of text features, latent
  /// channels, vocabulary against embedding rows. `device` is host memory.
  /// The half of the model is that of `task`; see check_half(). The folder may also name a made-up
  /// model, "synthetic:tiny-bf16" (parse_synthetic), with a made-up tokenizer unless one is given.
  [[nodiscard]] static Result<Pipeline> open(const ModelPaths& model, Device& device,
                                             Precision precision, std::size_t cache_budget_bytes,
                                             Task task = Task::kT2va);
  /// open() for a plan: parts may also be folders with a configuration of the released sizes and no
  /// weights, and warnings() says so; nothing can be computed with such a pipeline.
  [[nodiscard]] static Result<Pipeline> open_for_plan(const ModelPaths& model, Device& device,
                                                      Precision precision,
                                                      std::size_t cache_budget_bytes, Task task);

  /// Ids of the prompt as the encoder gets them; never empty: an empty prompt stands for one pad
  /// token (spec text_encoder.md §3.2).
  [[nodiscard]] Result<std::vector<std::int32_t>> tokenize(const std::string& prompt) const;
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }

  /// Applies adapters to the transformer, as every later read sees it. Called at most once, before
  /// any stage. Reads and checks the files; lora_reports() and warnings() then tell what was done.
  [[nodiscard]] Status add_loras(const LoraSetup& setup);
  /// kInvalidArgument when an adapter brings output heads that are not for this schedule.
  [[nodiscard]] Status check_schedule(const SigmaSchedule& schedule) const;
  [[nodiscard]] const std::vector<LoraReport>& lora_reports() const { return lora_reports_; }
  [[nodiscard]] WeightSource& transformer() const;
  [[nodiscard]] const TextEncoderConfig& text_config() const { return text_config_; }
  [[nodiscard]] const DitConfig& dit_config() const { return dit_config_; }
  [[nodiscard]] const audio_vae::AudioVaeConfig& audio_config() const { return audio_config_; }
  [[nodiscard]] const video_vae::VideoVaeConfig& video_config() const { return video_config_; }
  /// Names, shapes and sizes of all weights in one hash, for metadata.
  [[nodiscard]] std::string identity() const;
  /// The form that the transformer's attention is computed in, see ops::attention_form();
  /// kUnsupported as check_heads() has it.
  [[nodiscard]] Result<std::string> attention_form(Precision attention, DeviceId device) const;
  /// kUnsupported for conditions that this model's files have no encoder for: no vision tower, a
  /// VAE without encoder.
  [[nodiscard]] Status check_conditions(const PreparedRequest& prepared) const;
  /// What the text encoder gets. kInvalidArgument also for more tokens or packed rows than there
  /// are positions for, with the numbers.
  [[nodiscard]] Result<Presentation> present(const PreparedRequest& prepared) const;
  /// From here on stages that compute on `compute` get the layers of text encoder, transformer and
  /// video VAE through WeightStreams, which lives as long as the pipeline. Called at most once,
  /// after add_loras(). `compute` has a card and outlives the pipeline.
  [[nodiscard]] Status stream_weights(ComputeDevice& compute, const StreamOptions& options = {});
  /// What was streamed so far; empty without stream_weights().
  [[nodiscard]] std::vector<StreamReport> stream_reports() const;
  /// Memory and work of every stage in order; those without work are left out.
  [[nodiscard]] std::vector<StagePlan> plan_stages(const PreparedRequest& prepared,
                                                   const Presentation& presentation) const;
  /// From here on encoded prompts and modulation are looked up in `cache` and kept there.
  ///   compute  what decides the bits besides weights and precision: program, device, kernels
  void set_cache(TensorCache cache, std::string compute);
  /// What names the encoding of a presentation in the cache; empty without one. Reads the pixels of
  /// `media` where the presentation has vision blocks.
  [[nodiscard]] std::string text_key(const Presentation& presentation,
                                     std::span<const ConditionMedia> media) const;
  /// Hidden states kept under the key, or nothing.
  [[nodiscard]] std::optional<Tensor> cached_text(const std::string& key, JobProgress& progress);
  /// Keeps what encode_text() gave. That the disk refuses is a warning.
  void keep_text(const std::string& key, const Tensor& hidden, JobProgress& progress);
  /// What was found in the cache so far: "text", "modulation".
  [[nodiscard]] const std::vector<std::string>& cache_hits() const { return cache_hits_; }
  /// Device memory of the stages under a ceiling, before anything runs. kOutOfMemory names the
  /// stage that does not fit and the settings that would.
  [[nodiscard]] Result<DevicePlan> plan_device(const PreparedRequest& prepared,
                                               const Presentation& presentation,
                                               const StreamOptions& options,
                                               std::size_t ceiling_bytes) const;
  /// kInvalidInput when latents of these shapes are not this model's for this geometry.
  [[nodiscard]] Status check_latents(const ClipLatents& latents,
                                     const ClipGeometry& geometry) const;

  /// Latents of the conditions; `media` has an entry for each. kInternal for latents that are not
  /// finite or far outside what encoders give.
  [[nodiscard]] Result<ConditionLatents> encode_conditions(OpContext& ctx,
                                                           const PreparedRequest& prepared,
                                                           std::span<const ConditionMedia> media,
                                                           JobProgress& progress);
  /// Features of every vision block of the presentation, in order.
  [[nodiscard]] Result<std::vector<VisionFeatures>> run_vision(
      OpContext& ctx, const Presentation& presentation, std::span<const ConditionMedia> media,
      JobProgress& progress);
  /// Hidden states [tokens, text_dim] of a presentation whose blocks have these features.
  [[nodiscard]] Result<Tensor> encode_text(OpContext& ctx, const Presentation& presentation,
                                           std::span<const VisionFeatures> features,
                                           JobProgress& progress);
  /// Of text alone: hidden states [tokens, text_dim].
  [[nodiscard]] Result<Tensor> encode_text(OpContext& ctx, const std::vector<std::int32_t>& ids,
                                           JobProgress& progress);
  /// From noise to clean latents. `step_seconds` gets one entry an evaluation that really ran.
  ///   text_hidden [L, text_dim] · text_tags [L], empty: all are text
  ///   conditions  as many latents as prepared.conditions asks for, of their sizes
  [[nodiscard]] Result<ClipLatents> denoise(OpContext& ctx, const PreparedRequest& prepared,
                                            ConstTensorView text_hidden, JobProgress& progress,
                                            std::vector<double>& step_seconds,
                                            std::span<const Modality> text_tags = {},
                                            const ConditionLatents& conditions = {});
  /// [2, samples] at 32 kHz.
  [[nodiscard]] Result<Tensor> decode_audio(OpContext& ctx, const ClipLatents& latents,
                                            JobProgress& progress);
  /// Products of the video decoder; empty: those of the pipeline, but bf16 where a CUDA device
  /// decodes and the pipeline's are int8.
  void set_vae_precision(std::optional<Precision> precision) { vae_precision_ = precision; }
  [[nodiscard]] Precision vae_precision(DeviceKind device) const {
    const bool rounds_less = device == DeviceKind::kCuda && precision_ == Precision::kInt8;
    return vae_precision_.value_or(rounds_less ? Precision::kBF16 : precision_);
  }
  /// Hands finished frames to the sink in order, as u8 RGB: on a thread of its own, while the next
  /// ones are decoded. The calls have ended when this returns.
  [[nodiscard]] Status decode_video(OpContext& ctx, const ClipLatents& latents,
                                    const video_vae::FrameSink& sink, JobProgress& progress);
  /// How long the last decode_video waited for its sink.
  [[nodiscard]] double frame_wait_seconds() const { return frame_wait_seconds_; }

 private:
  explicit Pipeline(Tokenizer tokenizer)
      : tokenizer_(std::move(tokenizer)), warnings_(tokenizer_.warnings()) {}
  enum class Purpose { kWork, kPlan };
  [[nodiscard]] static Result<Pipeline> open_parts(const ModelPaths& model, Device& device,
                                                   Precision precision,
                                                   std::size_t cache_budget_bytes, Task task,
                                                   Purpose purpose);
  [[nodiscard]] StageOptions stage_options(const PreparedRequest& prepared,
                                           DeviceKind device) const;
  /// Reads the configurations of the opened parts and compares them.
  [[nodiscard]] Status read_configs();
  [[nodiscard]] Status check_parts_fit() const;
  [[nodiscard]] std::vector<StagePlan> plan_stages(const PreparedRequest& prepared,
                                                   const Presentation& presentation,
                                                   Precision precision, DeviceKind device) const;
  [[nodiscard]] StagePlan condition_plan(const PreparedRequest& prepared) const;
  /// Sets a stage without a streamed stack aside on a GPU.
  [[nodiscard]] Status reserve(const OpContext& ctx, const StagePlan& plan) const;
  [[nodiscard]] std::string settings_that_fit(const PreparedRequest& prepared,
                                              const Presentation& presentation,
                                              std::size_t ceiling_bytes) const;
  /// Modulation of the times: of earlier requests, from the cache, or else computed and kept.
  [[nodiscard]] Status prepare_modulation(OpContext& ctx, Dit& dit, std::span<const float> times,
                                          ModulationCache& modulation, JobProgress& progress);
  [[nodiscard]] std::string modulation_key(float time) const;
  [[nodiscard]] std::size_t side_bytes() const { return adapted_ ? adapted_->side_bytes() : 0; }
  /// The layers of a stage on ctx.device; null: it reads and caches them itself.
  [[nodiscard]] Result<LayerSource*> stage_layers(const OpContext& ctx, StreamedStack which,
                                                  LayerStack stack, const StagePlan& plan) const;

  Tokenizer tokenizer_;
  std::vector<std::string> warnings_;
  std::unique_ptr<ComponentWeights> text_encoder_;
  std::unique_ptr<ComponentWeights> transformer_;
  std::unique_ptr<AdaptedWeights> adapted_;  ///< null without adapters; reads transformer_
  std::vector<LoraReport> lora_reports_;
  std::unique_ptr<ComponentWeights> video_vae_;
  std::unique_ptr<ComponentWeights> audio_vae_;
  TextEncoderConfig text_config_;
  DitConfig dit_config_;
  video_vae::VideoVaeConfig video_config_;
  audio_vae::AudioVaeConfig audio_config_;
  Device* device_ = nullptr;
  Precision precision_ = Precision::kF32;
  std::size_t cache_budget_bytes_ = 0;
  std::optional<Precision> vae_precision_;
  double frame_wait_seconds_ = 0.0;
  std::optional<TensorCache> cache_;
  std::string cache_compute_;
  std::vector<std::string> cache_hits_;
  /// In host memory, of requests on a GPU: [layers, 3, 6·D] and [2·D] by the bits of the time.
  std::map<std::uint32_t, std::vector<Tensor>> kept_modulation_;
  /// By component, of requests on a GPU: text encoder, transformer, video VAE, audio VAE.
  std::array<std::unique_ptr<KeptTensors>, 4> kept_tensors_;
  std::unique_ptr<WeightStreams> streams_;  ///< last: reads the components
};

}  // namespace miniacc
