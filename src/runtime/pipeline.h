#pragma once

#include <memory>

#include "adapters/adapted_weights.h"
#include "checkpoint/open_component.h"
#include "io/tokenizer.h"
#include "model/audio_vae/audio_vae_decoder.h"
#include "model/dit/config.h"
#include "model/text_encoder/config.h"
#include "model/video_vae/video_vae_decoder.h"
#include "runtime/job_progress.h"
#include "runtime/request.h"
#include "runtime/sampler.h"

namespace miniacc {

/// Where each part of a model is, after looking through the folder.
struct ResolvedPaths {
  std::filesystem::path transformer;
  std::filesystem::path text_encoder;
  std::filesystem::path tokenizer;
  std::filesystem::path video_vae;
  std::filesystem::path audio_vae;
};
/// kInvalidArgument names the part that was neither given nor found.
[[nodiscard]] Result<ResolvedPaths> resolve_paths(const ModelPaths& model);

/// Clean latents of one clip, in the diffusion's normalised space.
struct ClipLatents {
  Tensor video;  ///< [channels, T, h, w] f32
  Tensor audio;  ///< [2, channels, A] f32, left and right
};

/// What the clip's stages cost, in floating-point operations; used to weigh progress.
struct StageCosts {
  double text_encoding = 0.0;
  double denoising = 0.0;
  double audio_decoding = 0.0;
  double video_decoding = 0.0;
};

/// Names of the stages in progress events and reports.
inline constexpr const char* kLoadStage = "load";
inline constexpr const char* kTextStage = "text encoding";
inline constexpr const char* kDenoiseStage = "denoising";
inline constexpr const char* kAudioStage = "audio decoding";
inline constexpr const char* kVideoStage = "video decoding";
inline constexpr const char* kSaveStage = "encode and save";

/// The four networks of one model, opened (headers and small tensors read), run stage by stage.
/// Each stage reads its weights as it needs them and gives them back at its end. A stage computes
/// on the device of its context; what stages hand on lies in host memory.
class Pipeline {
 public:
  /// Opens every component and checks that they belong together: widths of text features, latent
  /// channels, vocabulary against embedding rows. `device` is host memory.
  [[nodiscard]] static Result<Pipeline> open(const ModelPaths& model, Device& device,
                                             Precision precision, std::size_t cache_budget_bytes);

  /// Ids of the prompt as the encoder gets them; never empty: an empty prompt stands for one pad
  /// token (spec text_encoder.md §3.2).
  [[nodiscard]] Result<std::vector<std::int32_t>> tokenize(const std::string& prompt) const;
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }

  /// Merges adapters into the transformer, as every later read sees it. Called at most once, before
  /// any stage. Reads and checks the files; lora_reports() and
  /// warnings() then tell what was done.
  [[nodiscard]] Status merge_loras(const std::vector<LoraRequest>& loras, bool allow_partial,
                                   int num_threads);
  [[nodiscard]] const std::vector<LoraReport>& lora_reports() const { return lora_reports_; }
  [[nodiscard]] WeightSource& transformer() const;
  /// Names, shapes and sizes of all weights in one hash, for metadata.
  [[nodiscard]] std::string identity() const;
  [[nodiscard]] StageCosts costs(const PreparedRequest& prepared, std::int64_t num_tokens) const;
  /// kInvalidInput when latents of these shapes are not this model's for this geometry.
  [[nodiscard]] Status check_latents(const ClipLatents& latents,
                                     const ClipGeometry& geometry) const;

  /// Hidden states [tokens, text_dim].
  [[nodiscard]] Result<Tensor> encode_text(OpContext& ctx, const std::vector<std::int32_t>& ids,
                                           JobProgress& progress);
  /// From noise to clean latents. `step_seconds` gets one entry an evaluation that really ran.
  [[nodiscard]] Result<ClipLatents> denoise(OpContext& ctx, const PreparedRequest& prepared,
                                            ConstTensorView text_hidden, JobProgress& progress,
                                            std::vector<double>& step_seconds);
  /// [2, samples] at 32 kHz.
  [[nodiscard]] Result<Tensor> decode_audio(OpContext& ctx, const ClipLatents& latents,
                                            JobProgress& progress);
  /// Hands finished frames to the sink in order, as u8 RGB.
  [[nodiscard]] Status decode_video(OpContext& ctx, const ClipLatents& latents,
                                    const video_vae::FrameSink& sink, JobProgress& progress);

 private:
  explicit Pipeline(Tokenizer tokenizer)
      : tokenizer_(std::move(tokenizer)), warnings_(tokenizer_.warnings()) {}
  [[nodiscard]] Status check_parts_fit() const;

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
};

}  // namespace miniacc
