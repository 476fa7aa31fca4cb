#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/open_component.h"
#include "model/audio_vae/audio_encoder_config.h"
#include "model/audio_vae/audio_vae_config.h"
#include "model/dit/block.h"
#include "model/dit/config.h"
#include "model/text_encoder/config.h"
#include "model/video_vae/video_encoder_config.h"
#include "model/video_vae/video_vae_config.h"
#include "model/vision/vision_config.h"
#include "model/vision/vision_grid.h"
#include "runtime/conditions.h"
#include "runtime/geometry.h"

namespace miniacc {

/// Names of the stages in progress events, reports and plans.
inline constexpr const char* kLoadStage = "load";
inline constexpr const char* kInputStage = "read inputs";
inline constexpr const char* kConditionStage = "condition encoding";
inline constexpr const char* kVisionStage = "vision tower";
inline constexpr const char* kTextStage = "text encoding";
inline constexpr const char* kDenoiseStage = "denoising";
inline constexpr const char* kAudioStage = "audio decoding";
inline constexpr const char* kVideoStage = "video decoding";
inline constexpr const char* kSaveStage = "encode and save";

/// What one stage takes, from shapes alone. Bytes are of tensors that the device hands
/// out; scratch inside single ops and file pages, which are given back as they are read, come on
/// top.
struct StagePlan {
  std::string name;
  double flops = 0.0;                ///< of matrix products, convolutions and attention
  std::size_t weight_bytes = 0;      ///< of weights held at once
  std::size_t streamed_bytes = 0;    ///< of weights made ready over the whole stage
  std::size_t activation_bytes = 0;  ///< of everything else, at its highest
  /// The most that is held beside the layers of the stage's stack: activations and other weights.
  std::size_t beside_layers_bytes = 0;
  std::size_t workspace_bytes = 0;  ///< scratch of single ops on a CUDA device
  std::int64_t num_layers = 0;      ///< of the stage's stack that a CUDA device streams; 0: none
  std::size_t layer_bytes = 0;      ///< of one of its records

  /// What a CUDA device sets aside beside the layers.
  [[nodiscard]] std::size_t reserved_bytes() const {
    return (num_layers > 0 ? beside_layers_bytes : peak_bytes()) + workspace_bytes;
  }
  [[nodiscard]] std::size_t peak_bytes() const { return weight_bytes + activation_bytes; }
};

/// How stages compute and what they may keep.
struct StageOptions {
  Precision precision = Precision::kF32;
  std::size_t cache_budget_bytes = 0;
  DeviceKind device = DeviceKind::kCpu;                ///< that computes
  Precision attention = default_attention(precision);  ///< of the transformer's blocks
};

/// Configurations of the encoders; those that no condition needs are not looked at.
struct EncoderConfigs {
  video_vae::VideoVaeConfig video_vae;
  video_vae::VideoEncoderConfig video;
  audio_vae::AudioEncoderConfig audio;
};
/// Video VAE and audio VAE over the conditions, one after the other.
[[nodiscard]] StagePlan plan_condition_encoding(const ComponentWeights& video_weights,
                                                const ComponentWeights& audio_weights,
                                                const EncoderConfigs& configs,
                                                std::span<const Condition> conditions);

/// Vision tower over `grids`, all of them in one pass.
[[nodiscard]] StagePlan plan_vision(const ComponentWeights& weights, const VisionConfig& config,
                                    const StageOptions& options, std::span<const VisionGrid> grids);

/// Text encoder over a presentation of `num_tokens`, of which `num_vision_tokens` are replaced by
/// features of the vision tower and its DeepStack layers.
[[nodiscard]] StagePlan plan_text_encoding(const ComponentWeights& weights,
                                           const TextEncoderConfig& config,
                                           const StageOptions& options, std::int64_t num_tokens,
                                           std::int64_t num_vision_tokens,
                                           std::int64_t num_deepstack);

struct DenoisePlan {
  std::int64_t num_rows = 0;       ///< of the packed sequence
  std::int64_t num_text_rows = 0;  ///< of them
  std::int64_t num_times = 0;      ///< distinct timesteps over the whole schedule
  std::int64_t num_forwards = 0;
};
[[nodiscard]] StagePlan plan_denoising(const ComponentWeights& weights, const DitConfig& config,
                                       const StageOptions& options, const DenoisePlan& sizes);

[[nodiscard]] StagePlan plan_audio_decoding(const ComponentWeights& weights,
                                            const audio_vae::AudioVaeConfig& config,
                                            const StageOptions& options, const ClipGeometry& clip);

[[nodiscard]] StagePlan plan_video_decoding(const ComponentWeights& weights,
                                            const video_vae::VideoVaeConfig& config,
                                            const StageOptions& options, const ClipGeometry& clip);

}  // namespace miniacc
